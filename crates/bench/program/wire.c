/* The floor between two hosts, measured in turn with a case: bare kernel network connections, on which both sides
 * spin. connect.c makes the connection. */
#include "engine.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>

int wire = -1;

static void fail(const char *what) {
    perror(what);
    exit(2);
}

static void send_all(const char *from, size_t bytes) {
    while (bytes > 0) {
        ssize_t sent = send(wire, from, bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (sent > 0) from += sent, bytes -= (size_t)sent;
        else if (errno != EAGAIN && errno != EINTR) fail("the bare connection");
    }
}

static void receive_all(char *to, size_t bytes) {
    while (bytes > 0) {
        ssize_t got = recv(wire, to, bytes, MSG_DONTWAIT);
        if (got > 0) to += got, bytes -= (size_t)got;
        else if (got == 0 || (errno != EAGAIN && errno != EINTR)) fail("the bare connection");
    }
}

long wire_messages(const struct loop *l) {
    long window = l->bytes > 0 ? (long)(l->sample_each / (double)l->bytes) : 1;
    if (wire < 0) return 0;
    if (l->line_floor) return l->divisor == 2 && window == 1 ? 1 : 0;
    return window > 1 && l->divisor == (double)window ? window : 0;
}

/* Sends one message and receives one, or sends a window of messages and receives one byte. */
void ask_wire(const struct loop *l, long trips) {
    long messages = wire_messages(l);
    size_t bytes = l->bytes > 0 ? l->bytes : 1, back = messages > 1 ? 1 : bytes;
    for (long i = 0; i < trips; i++) {
        for (long m = 0; m < messages; m++) send_all(l->send, bytes);
        receive_all(l->receive, back);
    }
}

void answer_wire(const struct loop *l, long trips) {
    long messages = wire_messages(l);
    size_t bytes = l->bytes > 0 ? l->bytes : 1, back = messages > 1 ? 1 : bytes;
    for (long i = 0; i < trips; i++) {
        for (long m = 0; m < messages; m++) receive_all(l->receive, bytes);
        send_all(l->send, back);
    }
}
