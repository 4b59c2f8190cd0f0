/* A bare connection of two ranks on different hosts, for the floor. Rank 0 listens and sends its addresses by MPI;
 * rank 1 tries them, and identifies itself by a token. If that fails, there is no such floor. */
#include "bench.h"
#include "engine.h"
#include "share.h"

#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

enum { ADDRESSES = 16, TOKEN = 16, STEP_MS = 1000 };

struct place {
    struct sockaddr_in6 addresses[ADDRESSES]; /* IPv4 addresses are mapped to IPv6 */
    int count;
    char token[TOKEN];
};

static int listen_anywhere(struct place *place) {
    struct sockaddr_in6 any = {.sin6_family = AF_INET6};
    socklen_t length = sizeof any;
    int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0), no = 0;
    struct ifaddrs *all = NULL;
    if (fd < 0) return -1;
    setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof no);
    if (bind(fd, (struct sockaddr *)&any, length) || listen(fd, 64) || getsockname(fd, (struct sockaddr *)&any, &length) ||
        getifaddrs(&all)) {
        close(fd);
        return -1;
    }
    for (struct ifaddrs *at = all; at && place->count < ADDRESSES; at = at->ifa_next) {
        struct sockaddr_in6 one = {.sin6_family = AF_INET6, .sin6_port = any.sin6_port};
        if (!at->ifa_addr || at->ifa_flags & IFF_LOOPBACK || !(at->ifa_flags & IFF_UP)) continue;
        if (at->ifa_addr->sa_family == AF_INET) {
            one.sin6_addr.s6_addr[10] = one.sin6_addr.s6_addr[11] = 0xff;
            memcpy(one.sin6_addr.s6_addr + 12, &((struct sockaddr_in *)at->ifa_addr)->sin_addr, 4);
        } else if (at->ifa_addr->sa_family == AF_INET6) {
            one.sin6_addr = ((struct sockaddr_in6 *)at->ifa_addr)->sin6_addr;
            if (IN6_IS_ADDR_LINKLOCAL(&one.sin6_addr)) continue;
        } else {
            continue;
        }
        place->addresses[place->count++] = one;
    }
    freeifaddrs(all);
    if (getrandom(place->token, TOKEN, 0) != TOKEN) place->count = 0;
    return fd;
}

/* Returns whether `bytes` bytes arrived within the time for a step. */
static bool read_soon(int fd, char *to, size_t bytes) {
    while (bytes > 0) {
        struct pollfd entry = {.fd = fd, .events = POLLIN};
        ssize_t got = poll(&entry, 1, STEP_MS) == 1 ? recv(fd, to, bytes, MSG_DONTWAIT) : 0;
        if (got <= 0) return false;
        to += got, bytes -= (size_t)got;
    }
    return true;
}

/* Rank 1: connects to the first address with a valid answer. */
static int call(const struct place *place) {
    for (int i = 0; i < place->count; i++) {
        int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), error = 0;
        struct pollfd entry = {.fd = fd, .events = POLLOUT};
        socklen_t length = sizeof error;
        char answer;
        connect(fd, (const struct sockaddr *)&place->addresses[i], sizeof place->addresses[i]);
        if (poll(&entry, 1, STEP_MS) == 1 && !getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length) && !error &&
            send(fd, place->token, TOKEN, MSG_NOSIGNAL) == TOKEN && read_soon(fd, &answer, 1))
            return fd;
        close(fd);
    }
    return -1;
}

/* Rank 0: accepts until rank 1 reports by MPI that it has tried all addresses. */
static int await_call(int listener, const struct place *place) {
    MPI_Request over;
    int fd = -1, done = 0;
    MPI_Irecv(NULL, 0, MPI_BYTE, 1, TAG_CASE, MPI_COMM_WORLD, &over);
    while (!done) {
        struct pollfd entry = {.fd = listener, .events = POLLIN};
        char token[TOKEN];
        MPI_Test(&over, &done, MPI_STATUS_IGNORE);
        if (done || poll(&entry, 1, 10) != 1) continue;
        int one = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        if (fd < 0 && one >= 0 && read_soon(one, token, TOKEN) && !memcmp(token, place->token, TOKEN) &&
            send(one, "", 1, MSG_NOSIGNAL) == 1)
            fd = one;
        else if (one >= 0) close(one);
    }
    return fd;
}

void open_wire(void) {
    struct place place = {0};
    int listener = -1, yes = 1;
    if (shared || world_ranks != 2 || !options.floor) return;
    if (world_rank == 0) listener = listen_anywhere(&place);
    MPI_Bcast(&place, sizeof place, MPI_BYTE, 0, MPI_COMM_WORLD);
    if (world_rank == 0) {
        wire = await_call(listener, &place);
        if (listener >= 0) close(listener);
    } else {
        wire = call(&place);
        MPI_Send(NULL, 0, MPI_BYTE, 0, TAG_CASE, MPI_COMM_WORLD);
    }
    if (wire >= 0) setsockopt(wire, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    if (!agree(MPI_COMM_WORLD, wire >= 0) && wire >= 0) {
        close(wire);
        wire = -1;
    }
}
