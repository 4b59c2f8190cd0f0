/* Every kind of send (standard, synchronous, buffered, ready; blocking, nonblocking, persistent) with every kind of
 * receive, at sizes on both sides of each protocol threshold. Ranks communicate in pairs, an odd last one with itself.
 * test: ranks=1,2,3,4,8 timeout=120 */
#include "../check.h"

enum mode { STANDARD, SYNCHRONOUS, BUFFERED, READY, MODES };
enum way { BLOCKING, NONBLOCKING, PERSISTENT, WAYS };

static const int sizes[] = {0,     1,     7,     8,     40,    47,    48,    49,    63,    64,    65,    256,
                            1000,  4095,  4096,  4097,  8191,  8192,  8193,  16383, 16384, 16385, 16400, 32767,
                            32768, 32769, 49152, 65535, 65536, 65537, 300001, 1 << 20};
#define SIZES ((int)(sizeof sizes / sizeof *sizes))
#define LARGEST (1 << 20)

static unsigned char *out, *in;

static void send_with(enum mode mode, enum way way, int bytes, int to, int tag, MPI_Request *request)
{
    static int (*const blocking[])(const void *, int, MPI_Datatype, int, int, MPI_Comm) = {MPI_Send, MPI_Ssend, MPI_Bsend,
                                                                                           MPI_Rsend};
    static int (*const nonblocking[])(const void *, int, MPI_Datatype, int, int, MPI_Comm, MPI_Request *) = {
        MPI_Isend, MPI_Issend, MPI_Ibsend, MPI_Irsend};
    static int (*const persistent[])(const void *, int, MPI_Datatype, int, int, MPI_Comm, MPI_Request *) = {
        MPI_Send_init, MPI_Ssend_init, MPI_Bsend_init, MPI_Rsend_init};
    *request = MPI_REQUEST_NULL;
    switch (way) {
    case BLOCKING:
        OK(blocking[mode](out, bytes, MPI_BYTE, to, tag, MPI_COMM_WORLD));
        break;
    case NONBLOCKING:
        OK(nonblocking[mode](out, bytes, MPI_BYTE, to, tag, MPI_COMM_WORLD, request));
        break;
    default:
        OK(persistent[mode](out, bytes, MPI_BYTE, to, tag, MPI_COMM_WORLD, request));
        OK(MPI_Start(request));
    }
}

/* Completes a request of `way`; a persistent one becomes inactive and is freed. */
static void complete(enum way way, MPI_Request *request, MPI_Status *status)
{
    if (way == BLOCKING)
        return;
    OK(MPI_Wait(request, status));
    if (way == PERSISTENT) {
        CHECK(*request != MPI_REQUEST_NULL);
        OK(MPI_Request_free(request));
    }
    CHECK(*request == MPI_REQUEST_NULL);
}

static void receive_with(enum way way, int bytes, int from, int tag, MPI_Request *request, MPI_Status *status)
{
    memset(in, 0xa5, (size_t)bytes + 8);
    if (way == BLOCKING) {
        OK(MPI_Recv(in, bytes, MPI_BYTE, from, tag, MPI_COMM_WORLD, status));
    } else if (way == NONBLOCKING) {
        OK(MPI_Irecv(in, bytes, MPI_BYTE, from, tag, MPI_COMM_WORLD, request));
    } else {
        OK(MPI_Recv_init(in, bytes, MPI_BYTE, from, tag, MPI_COMM_WORLD, request));
        OK(MPI_Start(request));
    }
}

static void check_received(int bytes, int from, int tag, unsigned seed, const MPI_Status *status)
{
    check_status(__LINE__, status, from, tag, bytes);
    HOLDS(in, (size_t)bytes, seed);
    for (int i = 0; i < 8; i++)
        SAME(in[bytes + i], 0xa5);
}

/* One message to `peer` and one back. A token reports that the receive of a ready send is posted. */
static void exchange(enum mode mode, enum way sending, enum way receiving, int bytes, int peer)
{
    int tag = 1 + mode * 9 + sending * 3 + receiving, token = 0;
    unsigned seed = (unsigned)(tag * 31 + bytes);
    MPI_Request sent, received;
    MPI_Status status;
    if (peer == rank) {
        receive_with(receiving == BLOCKING ? NONBLOCKING : receiving, bytes, rank, tag, &received, &status);
        fill(out, (size_t)bytes, seed + (unsigned)rank);
        send_with(mode, sending, bytes, rank, tag, &sent);
        complete(receiving == BLOCKING ? NONBLOCKING : receiving, &received, &status);
        complete(sending, &sent, MPI_STATUS_IGNORE);
        check_received(bytes, rank, tag, seed + (unsigned)rank, &status);
        return;
    }
    for (int turn = 0; turn < 2; turn++) {
        int sender = (rank < peer) == (turn == 0);
        if (sender) {
            fill(out, (size_t)bytes, seed + (unsigned)rank);
            if (mode == READY)
                MPI_Recv(&token, 1, MPI_INT, peer, 999, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            send_with(mode, sending, bytes, peer, tag, &sent);
            complete(sending, &sent, MPI_STATUS_IGNORE);
        } else {
            enum way way = mode == READY && receiving == BLOCKING ? NONBLOCKING : receiving;
            receive_with(way, bytes, peer, tag, &received, &status);
            if (mode == READY)
                MPI_Send(&token, 1, MPI_INT, peer, 999, MPI_COMM_WORLD);
            complete(way, &received, &status);
            check_received(bytes, peer, tag, seed + (unsigned)peer, &status);
        }
    }
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    int peer = (rank ^ 1) < ranks ? rank ^ 1 : rank;
    out = allocate(LARGEST);
    in = allocate(LARGEST + 8);
    int room = 2 * (LARGEST + MPI_BSEND_OVERHEAD), detached;
    void *buffer = allocate((size_t)room), *given_back;
    OK(MPI_Buffer_attach(buffer, room));
    for (int i = 0; i < SIZES; i++)
        for (int mode = 0; mode < MODES; mode++)
            for (int sending = 0; sending < WAYS; sending++)
                for (int receiving = 0; receiving < WAYS; receiving++) {
                    /* A blocking synchronous send to self needs a posted receive, which `exchange` provides. */
                    exchange(mode, sending, receiving, sizes[i], peer);
                }
    OK(MPI_Buffer_detach(&given_back, &detached));
    CHECK(given_back == buffer);
    SAME(detached, room);
    free(buffer);
    free(in);
    free(out);
    return finish();
}
