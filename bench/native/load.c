/* Load client: many connections that send one request each and count what comes.
 *
 *     load PORT CLIENTS REQUEST MARKER READY [OPENING [SAMPLED [SLOW]]]
 *
 * REQUEST, MARKER and READY are in hexadecimal. Every connection to the loopback address sends REQUEST once. Each
 * MARKER in what comes is one event. At most OPENING clients (default 512) are on their way at once: connected,
 * and without READY yet. When all have had READY, "ready NANOSECONDS CLOSED" is printed: the time since the first
 * connection, and the clients that lost theirs before. Of every SAMPLEDth client each MARKER is followed by a
 * number, which is noted with its time of arrival. Every SLOWth client has a small receive buffer.
 *
 * What comes is looked at every half millisecond. A line on standard input is a command, sent once the one before
 * it is answered; the end of input ends the program:
 *     ?             print "EVENTS BYTES CLOSED"
 *     samples       print a line "CLIENT NUMBER NANOSECONDS" for each number noted, forget them, print "end"
 *     slow BYTES    let the slow clients take so many bytes a second from now on, 0 for none; print "slow"
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define ROOM (1 << 18)
#define KEPT 96       /* bytes kept of a read, so that a marker may lie across two */
#define DIGITS 20     /* after the marker of a sampled client, the number and what ends it */
#define SLOW_BUFFER 4096
#define TURNS 10      /* of the slow clients in a second */
#define LOOK_NS 500000 /* between two looks at what has come */

struct client {
    int fd, number, is_ready, is_sent, is_sampled, is_slow, kept;
    char tail[KEPT];
};

struct sample {
    uint64_t number, at_ns;
    uint32_t client;
};

struct text {
    char *bytes;
    size_t size;
};

static struct text request, marker, ready_text;
static unsigned long long events, bytes;
static int many, opening_max, opening, opened, closed, lost, ready;
static int sampled_every, slow_every, slow_bytes = -1;
static struct client *clients;
static struct sample *samples;
static size_t samples_found, samples_room;
static struct sockaddr_in address = {.sin_family = AF_INET};
static int poll_fd;

static void fail(const char *what) {
    perror(what);
    exit(1);
}

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000ull + now.tv_nsec;
}

static struct text from_hex(const char *hex) {
    struct text text = {malloc(strlen(hex) / 2 + 1), strlen(hex) / 2};
    for (size_t at = 0; at < text.size; at++) sscanf(hex + 2 * at, "%2hhx", (unsigned char *)text.bytes + at);
    return text;
}

static void note(const struct client *client, const char *at, uint64_t at_ns) {
    if (samples_found == samples_room) {
        samples_room = samples_room ? 2 * samples_room : 1 << 16;
        if ((samples = realloc(samples, samples_room * sizeof *samples)) == NULL) fail("realloc");
    }
    samples[samples_found++] = (struct sample){strtoull(at, NULL, 10), at_ns, client->number};
}

static void lose(struct client *client) {
    close(client->fd);
    client->fd = -1;
    closed++;
    if (!client->is_ready) {
        lost++;
        opening--;
    }
}

/* Take at most so many bytes, or all that there are for -1. */
static void take(struct client *client, ssize_t bytes_max) {
    static char room[KEPT + ROOM + 1];
    /* A marker counts once it is here whole, with its number: what is shorter waits for the next read. */
    size_t whole = marker.size + (client->is_sampled ? DIGITS : 0);
    for (;;) {
        size_t wanted = bytes_max < 0 || bytes_max > ROOM ? ROOM : (size_t)bytes_max;
        memcpy(room, client->tail, client->kept);
        ssize_t size = recv(client->fd, room + client->kept, wanted, MSG_DONTWAIT);
        if (size < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
        if (size <= 0) {
            lose(client);
            return;
        }
        uint64_t at_ns = client->is_sampled ? now_ns() : 0;
        bytes += size;
        size_t all = client->kept + size;
        room[all] = 0;
        const char *at = room, *end = room + all;
        while ((at = memmem(at, end - at, marker.bytes, marker.size)) != NULL && at + whole <= end) {
            events++;
            at += marker.size;
            if (client->is_sampled) note(client, at, at_ns);
        }
        if (!client->is_ready && memmem(room, all, ready_text.bytes, ready_text.size) != NULL) {
            client->is_ready = 1;
            ready++;
            opening--;
        }
        client->kept = (int)(all < whole - 1 ? all : whole - 1);
        memcpy(client->tail, end - client->kept, client->kept);
        if ((size_t)size < wanted || bytes_max >= 0) return;
    }
}

static void open_one(int number) {
    struct client *client = &clients[number];
    client->number = number;
    client->is_slow = slow_every && number % slow_every == slow_every - 1;
    client->is_sampled = sampled_every && number % sampled_every == 0 && !client->is_slow;
    client->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    if (client->fd < 0) fail("socket");
    int small = SLOW_BUFFER;
    if (client->is_slow) setsockopt(client->fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
    opening++;
    if (connect(client->fd, (struct sockaddr *)&address, sizeof address) < 0 && errno != EINPROGRESS) {
        if (errno == EADDRNOTAVAIL) fail("connect");
        lose(client);
        return;
    }
    struct epoll_event event = {.events = EPOLLIN | EPOLLOUT, .data.ptr = client};
    if (epoll_ctl(poll_fd, EPOLL_CTL_ADD, client->fd, &event) < 0) fail("epoll_ctl");
}

static void ask(struct client *client) {
    if (send(client->fd, request.bytes, request.size, MSG_NOSIGNAL) != (ssize_t)request.size) {
        lose(client);
        return;
    }
    client->is_sent = 1;
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = client};
    epoll_ctl(poll_fd, EPOLL_CTL_MOD, client->fd, &event);
}

static void slow_down(void) {
    for (int n = 0; n < many; n++)
        if (clients[n].is_slow && clients[n].fd >= 0) epoll_ctl(poll_fd, EPOLL_CTL_DEL, clients[n].fd, NULL);
}

static void slow_turn(void) {
    for (int n = 0; n < many; n++)
        if (clients[n].is_slow && clients[n].fd >= 0) take(&clients[n], slow_bytes / TURNS + 1);
}

static void obey(const char *line) {
    if (line[0] == '?') {
        printf("%llu %llu %d\n", events, bytes, closed);
    } else if (sscanf(line, "slow %d", &slow_bytes) == 1) {
        slow_down();
        printf("slow\n");
    } else {
        for (size_t n = 0; n < samples_found; n++)
            printf("%u %lu %lu\n", samples[n].client, samples[n].number, samples[n].at_ns);
        samples_found = 0;
        printf("end\n");
    }
    fflush(stdout);
}

int main(int argc, char **argv) {
    if (argc < 6) {
        fprintf(stderr, "usage: load PORT CLIENTS REQUEST MARKER READY [OPENING [SAMPLED [SLOW]]]\n");
        return 2;
    }
    address.sin_port = htons(atoi(argv[1]));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    many = atoi(argv[2]);
    request = from_hex(argv[3]);
    marker = from_hex(argv[4]);
    ready_text = from_hex(argv[5]);
    opening_max = argc > 6 ? atoi(argv[6]) : 512;
    sampled_every = argc > 7 ? atoi(argv[7]) : 0;
    slow_every = argc > 8 ? atoi(argv[8]) : 0;
    if (ready_text.size > marker.size || marker.size + DIGITS > KEPT) {
        fprintf(stderr, "MARKER has to be as long as READY, and at most %d bytes\n", KEPT - DIGITS);
        return 2;
    }
    struct rlimit files = {many + 64, many + 64};
    if (setrlimit(RLIMIT_NOFILE, &files) < 0) fail("setrlimit RLIMIT_NOFILE");
    clients = calloc(many, sizeof *clients);
    poll_fd = epoll_create1(0);
    struct epoll_event input = {.events = EPOLLIN, .data.ptr = NULL}, due[512];
    epoll_ctl(poll_fd, EPOLL_CTL_ADD, 0, &input);
    uint64_t began_ns = now_ns(), turn_ns = 0;
    int is_announced = 0;
    for (;;) {
        while (opened < many && opening < opening_max) open_one(opened++);
        if (ready + lost == many && !is_announced) {
            is_announced = 1;
            printf("ready %lu %d\n", now_ns() - began_ns, lost);
            fflush(stdout);
        }
        /* As a network card collects interrupts: a program that sleeps in epoll_wait would be woken by each event, at
         * the expense of the server that writes it, and of a slow server most. */
        nanosleep(&(struct timespec){0, LOOK_NS}, NULL);
        int found = epoll_wait(poll_fd, due, 512, slow_bytes > 0 ? 1000 / TURNS : -1);
        for (int n = 0; n < found; n++) {
            struct client *client = due[n].data.ptr;
            if (client == NULL) {
                char line[64];
                ssize_t size = read(0, line, sizeof line - 1);
                if (size <= 0) return 0;
                line[size] = 0;
                obey(line);
            } else if (client->fd >= 0) {
                if (due[n].events & EPOLLOUT && !client->is_sent) ask(client);
                if (client->fd >= 0 && due[n].events & ~EPOLLOUT) take(client, -1);
            }
        }
        if (slow_bytes > 0 && now_ns() - turn_ns > 1000000000ull / TURNS) {
            turn_ns = now_ns();
            slow_turn();
        }
    }
}
