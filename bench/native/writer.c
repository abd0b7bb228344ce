/* The least that a server of events can do: one epoll loop, one write a client and flush.
 *
 *     writer
 *
 * Prints its port. Answers each request with an SSE header and one "hello" event. A line "ROWS BYTES" on standard
 * input writes so many events of so many bytes to every client, as one chunk; the end of input ends the program.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

static const char HEAD[] =
    "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n";
static const char HELLO[] = "1f\r\nevent: hello\ndata: {\"ok\":true}\n\n\r\n";

static size_t flush_text(char *text, int rows, int row_bytes) {
    char *at = text;
    for (int row = 0; row < rows; row++) {
        memcpy(at, "data: ", 6);
        memset(at + 6, 'x', row_bytes - 8);
        memcpy(at + row_bytes - 2, "\n\n", 2);
        at += row_bytes;
    }
    return at - text;
}

int main(void) {
    struct rlimit files;
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    int listener = socket(AF_INET, SOCK_STREAM, 0), many = 0, room = 64, one = 1;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    bind(listener, (struct sockaddr *)&address, sizeof address);
    listen(listener, 4096);
    getsockname(listener, (struct sockaddr *)&address, &size);
    printf("%d\n", ntohs(address.sin_port));
    fflush(stdout);
    int *clients = malloc(room * sizeof *clients), poll = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN, .data.fd = listener}, due[512];
    epoll_ctl(poll, EPOLL_CTL_ADD, listener, &event);
    event.data.fd = 0;
    epoll_ctl(poll, EPOLL_CTL_ADD, 0, &event);
    static char line[256], request[65536];
    for (;;) {
        int found = epoll_wait(poll, due, 512, -1);
        for (int n = 0; n < found; n++) {
            int fd = due[n].data.fd;
            if (fd == listener) {
                int client = accept(listener, NULL, NULL);
                setsockopt(client, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
                event.data.fd = client;
                epoll_ctl(poll, EPOLL_CTL_ADD, client, &event);
            } else if (fd == 0) {
                ssize_t got = read(0, line, sizeof line - 1);
                if (got <= 0) return 0;
                line[got] = 0;
                int rows = 0, row_bytes = 0;
                sscanf(line, "%d %d", &rows, &row_bytes);
                char *chunk = malloc((size_t)rows * row_bytes + 32);
                int head = sprintf(chunk, "%x\r\n", rows * row_bytes);
                size_t whole = head + flush_text(chunk + head, rows, row_bytes);
                memcpy(chunk + whole, "\r\n", 2);
                for (int each = 0; each < many; each++)
                    if (write(clients[each], chunk, whole + 2) < 0) continue;
                free(chunk);
            } else if (read(fd, request, sizeof request) <= 0) {
                epoll_ctl(poll, EPOLL_CTL_DEL, fd, NULL);
                close(fd);
            } else {
                if (many == room) clients = realloc(clients, (room *= 2) * sizeof *clients);
                clients[many++] = fd;
                if (write(fd, HEAD, sizeof HEAD - 1) < 0 || write(fd, HELLO, sizeof HELLO - 1) < 0) continue;
            }
        }
    }
}
