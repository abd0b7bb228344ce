/* Load client: many connections that send one request each and count what comes.
 *
 *     load HOST PORT CLIENTS REQUEST MARKER READY
 *
 * REQUEST is sent once on every connection ("\r" and "\n" as escapes of the shell's printf). Each MARKER
 * in what comes is one event. When every connection has had READY in its bytes, "ready" is printed. A line on
 * standard input is answered with "EVENTS BYTES CLOSED"; the end of input ends the program.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#define ROOM (1 << 18)
#define KEPT 64 /* bytes kept of a read, so that a marker may lie across two */

struct client {
    int fd, is_ready, kept;
    char tail[KEPT];
};

static unsigned long long events, bytes;
static int closed, ready;

static void fail(const char *what) {
    perror(what);
    exit(1);
}

static unsigned long long count(const char *text, size_t size, const char *marker, size_t marker_size) {
    unsigned long long found = 0;
    const char *at = text, *end = text + size;
    while ((at = memmem(at, end - at, marker, marker_size)) != NULL) {
        found++;
        at += marker_size;
    }
    return found;
}

static void take(struct client *client, const char *marker, const char *is_ready) {
    static char room[KEPT + ROOM];
    size_t marker_size = strlen(marker);
    for (;;) {
        memcpy(room, client->tail, client->kept);
        ssize_t size = recv(client->fd, room + client->kept, ROOM, MSG_DONTWAIT);
        if (size < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
        if (size <= 0) {
            closed++;
            close(client->fd);
            client->fd = -1;
            return;
        }
        bytes += size;
        size_t all = client->kept + size;
        events += count(room, all, marker, marker_size);
        if (!client->is_ready && memmem(room, all, is_ready, strlen(is_ready)) != NULL) {
            client->is_ready = 1;
            ready++;
        }
        /* One byte less than the marker: a marker that was counted is never counted again. */
        size_t kept = client->is_ready ? marker_size - 1 : KEPT - 1;
        if (kept > all) kept = all;
        /* Until a client is ready more is kept, of which no marker may be counted twice. */
        if (!client->is_ready) events -= count(room + all - kept, kept, marker, marker_size);
        memcpy(client->tail, room + all - kept, kept);
        client->kept = (int)kept;
        if (size < ROOM) return;
    }
}

int main(int argc, char **argv) {
    if (argc != 7) {
        fprintf(stderr, "usage: load HOST PORT CLIENTS REQUEST MARKER READY\n");
        return 2;
    }
    int many = atoi(argv[3]), announced = 0;
    struct rlimit files = {many + 64, many + 64};
    setrlimit(RLIMIT_NOFILE, &files);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(atoi(argv[2]))};
    inet_pton(AF_INET, argv[1], &address.sin_addr);
    struct client *clients = calloc(many, sizeof *clients);
    int poll = epoll_create1(0);
    for (int n = 0; n < many; n++) {
        int fd = socket(AF_INET, SOCK_STREAM, 0);
        /* Loopback addresses of its own for each 20,000 connections: a port is 16 bits. */
        if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof address) < 0) fail("connect");
        if (send(fd, argv[4], strlen(argv[4]), 0) < 0) fail("send");
        clients[n].fd = fd;
        struct epoll_event event = {.events = EPOLLIN, .data.ptr = &clients[n]};
        epoll_ctl(poll, EPOLL_CTL_ADD, fd, &event);
    }
    struct epoll_event input = {.events = EPOLLIN, .data.ptr = NULL}, due[512];
    epoll_ctl(poll, EPOLL_CTL_ADD, 0, &input);
    for (;;) {
        int found = epoll_wait(poll, due, 512, -1);
        for (int n = 0; n < found; n++) {
            struct client *client = due[n].data.ptr;
            if (client != NULL) {
                if (client->fd >= 0) take(client, argv[5], argv[6]);
                continue;
            }
            char line[16];
            if (read(0, line, sizeof line) <= 0) return 0;
            printf("%llu %llu %d\n", events, bytes, closed);
            fflush(stdout);
        }
        if (ready == many && !announced) {
            announced = 1;
            printf("ready\n");
            fflush(stdout);
        }
    }
}
