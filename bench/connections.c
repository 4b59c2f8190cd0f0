/* Cost of connections without MPI: one process connects to sleeping processes, and they exchange greeting, answer and
 * message as ranks do over TCP (64 bytes, 64, 32 and a message; a message). Prints microseconds for each connection.
 *     cc -O2 -o connections bench/connections.c && ./connections 1000
 * Compare with tests/c/pt2pt/many_connections.c, `figures`. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { MOST = 4000, WORD = 64, PROOF = 32, MESSAGE = 40, AWAKE_US = 200 };

static double now_us(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1e6 + time.tv_nsec / 1e3;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void check(int good, const char *what)
{
    if (!good) {
        perror(what);
        exit(1);
    }
}

/* Receives `bytes` bytes, polling. */
static void take(int fd, int bytes)
{
    char word[256];
    while (bytes > 0) {
        ssize_t got = recv(fd, word, bytes, MSG_DONTWAIT);
        check(got > 0 || (got < 0 && errno == EAGAIN), "the other end has gone");
        bytes -= got > 0 ? got : 0;
    }
}

static void give(int fd, int bytes)
{
    static char word[256];
    check(send(fd, word, bytes, MSG_NOSIGNAL) == bytes, "send");
}

static void hurry(int fd)
{
    int one = 1;
    check(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one) == 0, "TCP_NODELAY");
}

/* Sleeps until a connection arrives, answers, polls for a while and sleeps again. */
static void answer(int listener)
{
    struct epoll_event event = {.events = EPOLLIN};
    check(prctl(PR_SET_PDEATHSIG, SIGKILL) == 0, "prctl");
    int epoll = epoll_create1(0);
    check(epoll_ctl(epoll, EPOLL_CTL_ADD, listener, &event) == 0, "epoll_ctl");
    check(epoll_wait(epoll, &event, 1, -1) == 1, "epoll_wait");
    int fd = accept(listener, NULL, NULL);
    check(fd >= 0, "accept");
    hurry(fd);
    take(fd, WORD);
    give(fd, WORD);
    take(fd, PROOF + MESSAGE);
    give(fd, MESSAGE);
    char byte;
    for (double began = now_us(); now_us() - began < AWAKE_US;)
        recv(fd, &byte, 1, MSG_DONTWAIT);
    pause();
}

static void call(struct sockaddr_in *at)
{
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    check(fd >= 0 && connect(fd, (struct sockaddr *)at, sizeof *at) == 0, "connect");
    hurry(fd);
    give(fd, WORD);
    take(fd, WORD);
    give(fd, PROOF + MESSAGE);
    take(fd, MESSAGE);
}

int main(int argc, char **argv)
{
    static struct sockaddr_in at[MOST];
    static pid_t others[MOST];
    static double took[MOST];
    int count = argc > 1 ? atoi(argv[1]) : 1000;
    if (count < 1 || count > MOST) {
        fprintf(stderr, "connections: give a number from 1 to %d\n", MOST);
        return 2;
    }
    struct rlimit files;
    check(getrlimit(RLIMIT_NOFILE, &files) == 0, "getrlimit");
    files.rlim_cur = files.rlim_max;
    check(setrlimit(RLIMIT_NOFILE, &files) == 0, "setrlimit");
    for (int i = 0; i < count; i++) {
        int listener = socket(AF_INET, SOCK_STREAM, 0);
        socklen_t length = sizeof at[i];
        at[i] = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        check(bind(listener, (struct sockaddr *)&at[i], sizeof at[i]) == 0, "bind");
        check(getsockname(listener, (struct sockaddr *)&at[i], &length) == 0, "getsockname");
        check(listen(listener, 64) == 0, "listen");
        others[i] = fork();
        check(others[i] >= 0, "fork");
        if (others[i] == 0)
            answer(listener);
        close(listener);
    }
    /* Waits until all processes are asleep. */
    sleep(2);
    double began = now_us();
    for (int i = 0; i < count; i++) {
        double since = now_us();
        call(&at[i]);
        took[i] = now_us() - since;
    }
    double mean = (now_us() - began) / count;
    qsort(took, count, sizeof *took, compare);
    printf("%d connections: mean %.0f, median %.0f, quarters %.0f and %.0f us\n", count, mean, took[count / 2],
           took[count / 4], took[3 * count / 4]);
    for (int i = 0; i < count; i++)
        kill(others[i], SIGKILL);
    return 0;
}
