/* Active requests are freed: their operations complete before MPI_Finalize returns, and unmatched ones end there.
 * test: mistakes=yes ranks=1,2,3,4 args=recv;persistent;any;typed;send;ssend;buffered;unmatched;mixed */
#include "../check.h"

enum { SIZES = 9, MOST = 3000000, TAG = 5 };
static const int sizes[SIZES] = {0, 8, 100, 4000, 20000, 40000, 70000, 400000, MOST};
static unsigned char *in[SIZES], *out[SIZES];
static int to, from;

/* Called at the start of MPI_Finalize: sends a message to the sender, which reports that this rank has reached
 * MPI_Finalize. */
static int tell(MPI_Comm comm, int key, void *value, void *extra)
{
    (void)comm, (void)key, (void)value, (void)extra;
    int token = 1;
    return MPI_Send(&token, 1, MPI_INT, from, 1, MPI_COMM_WORLD);
}

static void tell_when_finalizing(void)
{
    int key;
    MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, tell, &key, NULL);
    MPI_Comm_set_attr(MPI_COMM_SELF, key, NULL);
}

static void await_finalizing(int peer)
{
    int token;
    OK(MPI_Recv(&token, 1, MPI_INT, peer, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
}

static void recv_all(int source, int mode)
{
    MPI_Request request;
    for (int i = 0; i < SIZES; i++) {
        MPI_Datatype type = MPI_BYTE;
        int count = sizes[i];
        if (mode == 't') {
            MPI_Type_create_hvector(sizes[i], 1, 2, MPI_BYTE, &type);
            MPI_Type_commit(&type);
            count = 1;
        }
        if (mode == 'p') {
            OK(MPI_Recv_init(in[i], count, type, source, TAG + i, MPI_COMM_WORLD, &request));
            OK(MPI_Start(&request));
        } else
            OK(MPI_Irecv(in[i], count, type, source, TAG + i, MPI_COMM_WORLD, &request));
        OK(MPI_Request_free(&request));
        CHECK(request == MPI_REQUEST_NULL);
        if (type != MPI_BYTE)
            MPI_Type_free(&type);
    }
}

static void send_all(int mode)
{
    for (int i = 0; i < SIZES; i++) {
        MPI_Request request = MPI_REQUEST_NULL;
        int tag = TAG + i;
        switch (mode) {
        case 'w':
            OK(MPI_Send(out[i], sizes[i], MPI_BYTE, to, tag, MPI_COMM_WORLD));
            continue;
        case 'b':
            OK(MPI_Ibsend(out[i], sizes[i], MPI_BYTE, to, tag, MPI_COMM_WORLD, &request));
            break;
        case 's':
            OK(MPI_Issend(out[i], sizes[i], MPI_BYTE, to, tag, MPI_COMM_WORLD, &request));
            break;
        case 'i':
            OK(MPI_Isend(out[i], sizes[i], MPI_BYTE, to, tag, MPI_COMM_WORLD, &request));
            break;
        }
        OK(MPI_Request_free(&request));
    }
}

/* Checks every second byte of a receive with a gappy type. */
static void check_all(int mode)
{
    for (int i = 0; i < SIZES; i++)
        for (int k = 0; k < sizes[i]; k++)
            if (in[i][mode == 't' ? 2 * k : k] != byte_of(100 * from + i, k)) {
                fail(__LINE__, "byte %d of %d is wrong", k, sizes[i]);
                break;
            }
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    const char *how = argv[1];
    int is_recv = !strcmp(how, "recv") || !strcmp(how, "persistent") || !strcmp(how, "any") || !strcmp(how, "typed");
    int is_send = !strcmp(how, "send") || !strcmp(how, "ssend") || !strcmp(how, "buffered");
    to = (rank + 1) % ranks, from = (rank + ranks - 1) % ranks;
    for (int i = 0; i < SIZES; i++) {
        in[i] = allocate(2 * (size_t)sizes[i]);
        out[i] = allocate(sizes[i]);
        memset(in[i], 0, 2 * (size_t)sizes[i]);
        fill(out[i], sizes[i], 100 * rank + i);
    }
    MPI_Buffer_attach(allocate(8 * MOST), 8 * MOST);
    int mode = !strcmp(how, "persistent") ? 'p' : !strcmp(how, "typed") ? 't' : 'r';
    if (is_recv) {
        recv_all(strcmp(how, "any") ? from : MPI_ANY_SOURCE, mode);
        meet();
        /* Rank 0 sends last, to ranks that are in MPI_Finalize by then. */
        if (rank != 0 || ranks == 1)
            send_all('w');
        if (rank == 0 && ranks > 1) {
            await_finalizing(to);
            send_all('w');
        }
        if (rank == 1)
            tell_when_finalizing();
    } else if (is_send) {
        meet();
        send_all(how[0] == 'b' ? 'b' : how[1] == 's' ? 's' : 'i');
        if (rank != 0) {
            /* Messages to rank 1 are received when rank 0 is in MPI_Finalize. */
            if (rank == 1)
                await_finalizing(from);
            for (int i = SIZES - 1; i >= 0; i--)
                OK(MPI_Recv(in[i], sizes[i], MPI_BYTE, from, TAG + i, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        } else if (ranks > 1) {
            for (int i = 0; i < SIZES; i++)
                OK(MPI_Recv(in[i], sizes[i], MPI_BYTE, from, TAG + i, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
            from = to; /* the rank that this rank notifies */
            tell_when_finalizing();
        } else
            recv_all(0, 'r');
    } else if (!strcmp(how, "unmatched")) {
        /* Unmatched receives from all ranks, including self. */
        static unsigned char more[MOST];
        MPI_Request request;
        for (int peer = 0; peer < ranks; peer++) {
            int tag = TAG + rank;
            OK(MPI_Irecv(more, 8, MPI_BYTE, peer, 99, MPI_COMM_WORLD, &request));
            OK(MPI_Request_free(&request));
            OK(MPI_Irecv(more, 8, MPI_BYTE, MPI_ANY_SOURCE, 99, MPI_COMM_WORLD, &request));
            OK(MPI_Request_free(&request));
            OK(MPI_Issend(out[1], 8, MPI_BYTE, peer, tag, MPI_COMM_WORLD, &request));
            OK(MPI_Request_free(&request));
            OK(MPI_Isend(out[SIZES - 1], MOST, MPI_BYTE, peer, tag, MPI_COMM_WORLD, &request));
            OK(MPI_Request_free(&request));
            OK(MPI_Ibsend(out[SIZES - 1], MOST, MPI_BYTE, peer, tag, MPI_COMM_WORLD, &request));
            OK(MPI_Request_free(&request));
            /* These requests are freed. */
            OK(MPI_Irecv(more, 8, MPI_BYTE, peer, 99, MPI_COMM_WORLD, &request));
            OK(MPI_Irecv(more, 8, MPI_BYTE, MPI_ANY_SOURCE, 99, MPI_COMM_WORLD, &request));
            OK(MPI_Issend(out[1], 8, MPI_BYTE, peer, tag, MPI_COMM_WORLD, &request));
            if (peer == 1)
                break; /* the attached buffer has space for two */
        }
        return finish();
    } else {
        /* All kinds at the same time, on a communicator that is freed too. */
        MPI_Comm comm;
        MPI_Request request;
        MPI_Comm_dup(MPI_COMM_WORLD, &comm);
        for (int i = 0; i < SIZES; i++) {
            OK(MPI_Irecv(in[i], sizes[i], MPI_BYTE, i % 2 ? from : MPI_ANY_SOURCE, TAG + i, comm, &request));
            OK(MPI_Request_free(&request));
            OK(MPI_Irecv(NULL, 0, MPI_BYTE, from, 99, comm, &request));
            OK(MPI_Request_free(&request));
        }
        for (int i = 0; i < SIZES; i++) {
            OK(MPI_Isend(out[i], sizes[i], MPI_BYTE, to, TAG + i, comm, &request));
            OK(MPI_Request_free(&request));
        }
        MPI_Comm_free(&comm);
    }
    int failed = finish();
    from = (rank + ranks - 1) % ranks;
    check_all(mode);
    return failed || failures ? 1 : 0;
}
