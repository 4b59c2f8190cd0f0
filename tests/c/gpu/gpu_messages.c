/* Messages from and to device memory: sizes around each threshold, every kind of memory, send mode and form of request,
 * derived datatypes, short and truncated messages, and an address that is freed and used again.
 *
 * usage: gpu_messages [late]        late: the driver is loaded after MPI_Init
 *
 * test: only=build link=-ldl */
#include "../check.h"
#include "gpu.h"
#include <mpi-ext.h>

enum { TAG = 5, LONGEST = (1 << 20) + 1 };

static const int sizes[] = {0, 1, 8, 48, 49, 1023, 4096, 8191, 8192, 8193, 65536, 65537, 262144, (1 << 20) - 1, 1 << 20, LONGEST};

static char pattern(int seed, int index)
{
    return (char)(seed * 31 + index * 7 + (index >> 8));
}

static void paint(char *data, int seed, int bytes)
{
    for (int i = 0; i < bytes; i++)
        data[i] = pattern(seed, i);
}

static void expect(const char *data, int seed, int bytes, int line)
{
    for (int i = 0; i < bytes; i++)
        if (data[i] != pattern(seed, i)) {
            fail(line, "byte %d of %d is %d instead of %d", i, bytes, data[i], pattern(seed, i));
            return;
        }
}

/* One message of each size from rank 0 to rank 1, and back. */
static void contiguous(int from_kind, int to_kind, int device)
{
    char *host = malloc(LONGEST);
    for (unsigned s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        int bytes = sizes[s];
        MPI_Status status;
        int count;
        char *mine = from_kind < 0 ? host : device_memory(bytes, from_kind, device, 1);
        char *theirs = device_memory(bytes, to_kind, device, 2);
        if (rank == 0) {
            paint(from_kind < 0 ? host : at(mine), s, bytes);
            OK(MPI_Send(mine, bytes, MPI_CHAR, 1, TAG, MPI_COMM_WORLD));
            OK(MPI_Recv(theirs, bytes, MPI_CHAR, 1, TAG, MPI_COMM_WORLD, &status));
        } else {
            OK(MPI_Recv(theirs, bytes, MPI_CHAR, 0, TAG, MPI_COMM_WORLD, &status));
            OK(MPI_Ssend(theirs, bytes, MPI_CHAR, 0, TAG, MPI_COMM_WORLD));
        }
        MPI_Get_count(&status, MPI_CHAR, &count);
        SAME(count, bytes);
        expect(at(theirs), s, bytes, __LINE__);
        if (from_kind >= 0)
            SAME(cuMemFree_v2((CUdeviceptr)mine), CUDA_SUCCESS);
        SAME(cuMemFree_v2((CUdeviceptr)theirs), CUDA_SUCCESS);
    }
    free(host);
}

/* Several requests at once, completed in each way. */
static void nonblocking(int bytes)
{
    enum { COUNT = 6 };
    MPI_Request requests[2 * COUNT];
    char *in[COUNT], *out[COUNT];
    int flag = 0, peer = 1 - rank;
    for (int i = 0; i < COUNT; i++) {
        in[i] = device_memory(bytes, FAKE_DEVICE, i % 2, 3);
        out[i] = device_memory(bytes, FAKE_DEVICE, i % 2, 4);
        paint(at(out[i]), i, bytes);
        OK(MPI_Irecv(in[i], bytes, MPI_CHAR, i % 2 ? MPI_ANY_SOURCE : peer, i, MPI_COMM_WORLD, &requests[i]));
    }
    for (int i = 0; i < COUNT; i++)
        if (i == 2)
            OK(MPI_Issend(out[i], bytes, MPI_CHAR, peer, i, MPI_COMM_WORLD, &requests[COUNT + i]));
        else
            OK(MPI_Isend(out[i], bytes, MPI_CHAR, peer, i, MPI_COMM_WORLD, &requests[COUNT + i]));
    OK(MPI_Wait(&requests[0], MPI_STATUS_IGNORE));
    while (!flag)
        OK(MPI_Test(&requests[1], &flag, MPI_STATUS_IGNORE));
    int index;
    OK(MPI_Waitany(1, &requests[2], &index, MPI_STATUS_IGNORE));
    OK(MPI_Waitall(2 * COUNT, requests, MPI_STATUSES_IGNORE));
    for (int i = 0; i < COUNT; i++) {
        expect(at(in[i]), i, bytes, __LINE__);
        cuMemFree_v2((CUdeviceptr)in[i]);
        cuMemFree_v2((CUdeviceptr)out[i]);
    }
}

static void persistent(int bytes)
{
    MPI_Request requests[2];
    int peer = 1 - rank;
    char *in = device_memory(bytes, FAKE_DEVICE, 0, 3), *out = device_memory(bytes, FAKE_POOL, 1, 4);
    OK(MPI_Send_init(out, bytes, MPI_CHAR, peer, TAG, MPI_COMM_WORLD, &requests[0]));
    OK(MPI_Recv_init(in, bytes, MPI_CHAR, peer, TAG, MPI_COMM_WORLD, &requests[1]));
    for (int round = 0; round < 3; round++) {
        paint(at(out), round, bytes);
        OK(MPI_Startall(2, requests));
        OK(MPI_Waitall(2, requests, MPI_STATUSES_IGNORE));
        expect(at(in), round, bytes, __LINE__);
    }
    OK(MPI_Request_free(&requests[0]));
    OK(MPI_Request_free(&requests[1]));
    cuMemFree_v2((CUdeviceptr)in);
    cuMemFree_v2((CUdeviceptr)out);
}

/* Sendrecv, a buffered send, a matched probe, a freed and a cancelled request. */
static void others(int bytes)
{
    int peer = 1 - rank;
    MPI_Status status;
    MPI_Message message;
    MPI_Request request;
    char *in = device_memory(bytes, FAKE_MAPPED, 0, 3), *out = device_memory(bytes, FAKE_DEVICE, 1, 4);
    char *attached = malloc(bytes + MPI_BSEND_OVERHEAD);
    paint(at(out), rank, bytes);
    OK(MPI_Sendrecv(out, bytes, MPI_CHAR, peer, TAG, in, bytes, MPI_CHAR, peer, TAG, MPI_COMM_WORLD, &status));
    expect(at(in), peer, bytes, __LINE__);
    OK(MPI_Sendrecv_replace(in, bytes, MPI_CHAR, peer, TAG, peer, TAG, MPI_COMM_WORLD, &status));
    expect(at(in), rank, bytes, __LINE__);
    OK(MPI_Isendrecv(out, bytes, MPI_CHAR, peer, TAG, in, bytes, MPI_CHAR, peer, TAG, MPI_COMM_WORLD, &request));
    OK(MPI_Wait(&request, &status));
    expect(at(in), peer, bytes, __LINE__);

    OK(MPI_Buffer_attach(attached, bytes + MPI_BSEND_OVERHEAD));
    OK(MPI_Bsend(out, bytes, MPI_CHAR, peer, TAG, MPI_COMM_WORLD));
    memset(at(out), 9, bytes);
    memset(at(in), 0, bytes);
    OK(MPI_Mprobe(peer, TAG, MPI_COMM_WORLD, &message, &status));
    OK(MPI_Mrecv(in, bytes, MPI_CHAR, &message, &status));
    expect(at(in), peer, bytes, __LINE__);
    OK(MPI_Buffer_detach(&attached, &bytes));
    bytes -= MPI_BSEND_OVERHEAD;
    free(attached);

    memset(at(in), 0, bytes);
    OK(MPI_Irecv(in, bytes, MPI_CHAR, peer, TAG + 1, MPI_COMM_WORLD, &request));
    OK(MPI_Cancel(&request));
    OK(MPI_Wait(&request, &status));
    SAME(at(in)[0], 0);
    /* The message behind that of the freed request shows that it has arrived. */
    OK(MPI_Irecv(in, bytes, MPI_CHAR, peer, TAG, MPI_COMM_WORLD, &request));
    OK(MPI_Request_free(&request));
    paint(at(out), 10 + rank, bytes);
    OK(MPI_Send(out, bytes, MPI_CHAR, peer, TAG, MPI_COMM_WORLD));
    OK(MPI_Sendrecv(NULL, 0, MPI_CHAR, peer, TAG, NULL, 0, MPI_CHAR, peer, TAG, MPI_COMM_WORLD, &status));
    expect(at(in), 10 + peer, bytes, __LINE__);
    cuMemFree_v2((CUdeviceptr)in);
    cuMemFree_v2((CUdeviceptr)out);
}

/* Every second block of a column is sent; gaps of the receiver stay as they are. */
static void derived(int blocks, int length)
{
    enum { GAP = 3 };
    int stride = length + GAP, bytes = blocks * length, span = blocks * stride;
    char *in = device_memory(span, FAKE_DEVICE, 0, 3), *out = device_memory(span, FAKE_DEVICE, 1, 4);
    char *plain = device_memory(bytes, FAKE_DEVICE, 0, 5);
    int *displacements = malloc(blocks * sizeof *displacements);
    MPI_Datatype vector, indexed, back;
    MPI_Status status;
    for (int i = 0; i < blocks; i++)
        displacements[i] = (blocks - 1 - i) * stride;
    OK(MPI_Type_vector(blocks, length, stride, MPI_CHAR, &vector));
    OK(MPI_Type_create_indexed_block(blocks, length, displacements, MPI_CHAR, &indexed));
    OK(MPI_Type_create_hvector(blocks, length, -stride, MPI_CHAR, &back));
    OK(MPI_Type_commit(&vector));
    OK(MPI_Type_commit(&indexed));
    OK(MPI_Type_commit(&back));
    paint(at(out), 1, span);
    if (rank == 0) {
        OK(MPI_Send(out, 1, vector, 1, TAG, MPI_COMM_WORLD));
        OK(MPI_Send(out, 1, indexed, 1, TAG, MPI_COMM_WORLD));
        OK(MPI_Send(out + (blocks - 1) * stride, 1, back, 1, TAG, MPI_COMM_WORLD));
    } else {
        OK(MPI_Recv(plain, bytes, MPI_CHAR, 0, TAG, MPI_COMM_WORLD, &status));
        for (int i = 0; i < bytes; i++)
            if (at(plain)[i] != pattern(1, i / length * stride + i % length)) {
                fail(__LINE__, "byte %d of a vector", i);
                break;
            }
        OK(MPI_Recv(in, 1, indexed, 0, TAG, MPI_COMM_WORLD, &status));
        for (int i = 0; i < span - GAP; i++)
            if (at(in)[i] != (i % stride < length ? pattern(1, i) : 3)) {
                fail(__LINE__, "byte %d of an indexed type", i);
                break;
            }
        memset(at(in), 3, span);
        OK(MPI_Recv(in, 1, indexed, 0, TAG, MPI_COMM_WORLD, &status));
        expect(at(in), 1, length, __LINE__);
        SAME(at(in)[length], 3);
    }
    MPI_Type_free(&vector);
    MPI_Type_free(&indexed);
    MPI_Type_free(&back);
    free(displacements);
    cuMemFree_v2((CUdeviceptr)in);
    cuMemFree_v2((CUdeviceptr)out);
    cuMemFree_v2((CUdeviceptr)plain);
}

/* A message shorter than the buffer, one that is too long, and addresses in the datatype. */
static void edges(void)
{
    enum { BYTES = 20000, SHORTER = 9000 };
    char *in = device_memory(BYTES, FAKE_DEVICE, 0, 3), *out = device_memory(BYTES, FAKE_DEVICE, 0, 4);
    char *next = device_memory(BYTES, FAKE_DEVICE, 1, 5);
    MPI_Status status;
    paint(at(out), 2, BYTES);
    if (rank == 0) {
        OK(MPI_Send(out, SHORTER, MPI_CHAR, 1, TAG, MPI_COMM_WORLD));
        OK(MPI_Send(out, BYTES, MPI_CHAR, 1, TAG, MPI_COMM_WORLD));
        OK(MPI_Send(out, 200, MPI_CHAR, 1, TAG, MPI_COMM_WORLD));
    } else {
        OK(MPI_Recv(in, BYTES, MPI_CHAR, 0, TAG, MPI_COMM_WORLD, &status));
        expect(at(in), 2, SHORTER, __LINE__);
        SAME(at(in)[SHORTER], 3);
        SAME(at(in)[BYTES - 1], 3);
        memset(at(in), 3, BYTES);
        CLASS(MPI_Recv(in, SHORTER, MPI_CHAR, 0, TAG, MPI_COMM_WORLD, &status), MPI_ERR_TRUNCATE);
        SAME(at(in)[SHORTER], 3);

        MPI_Aint addresses[2];
        int lengths[2] = {100, 100};
        MPI_Datatype absolute;
        MPI_Get_address(in, &addresses[0]);
        MPI_Get_address(next, &addresses[1]);
        OK(MPI_Type_create_hindexed(2, lengths, addresses, MPI_CHAR, &absolute));
        OK(MPI_Type_commit(&absolute));
        OK(MPI_Recv(MPI_BOTTOM, 1, absolute, 0, TAG, MPI_COMM_WORLD, &status));
        expect(at(in), 2, 100, __LINE__);
        for (int i = 0; i < 100; i++)
            if (at(next)[i] != pattern(2, 100 + i))
                fail(__LINE__, "byte %d of the second part", i);
        MPI_Type_free(&absolute);
    }
    OK(MPI_Sendrecv(out, BYTES, MPI_CHAR, rank, TAG, in, BYTES, MPI_CHAR, rank, TAG, MPI_COMM_WORLD, &status));
    expect(at(in), 2, BYTES, __LINE__);
    cuMemFree_v2((CUdeviceptr)in);
    cuMemFree_v2((CUdeviceptr)out);
    cuMemFree_v2((CUdeviceptr)next);
}

/* A message longer than all its pieces in host memory, with each kind of buffer at both sides. The host memory is
 * limited, the driver copies ahead, and no stream is waited for. */
static void pieces(void)
{
    enum { BYTES = (21 << 20) + 77, MIB = 1 << 20 };
    char *host = malloc(BYTES), *memory = device_memory(BYTES, FAKE_DEVICE, rank % 2, 1);
    MPI_Status status;
    int count;
    size_t registered = fake_registered_bytes();
    long waits = fake_calls("cuStreamSynchronize");
    for (int way = 0; way < 4; way++) {
        char *mine = (way >> rank) % 2 ? host : memory, *seen = mine == host ? host : at(memory);
        fake_most_queued(1);
        if (rank == 0) {
            paint(seen, way, BYTES);
            OK(MPI_Send(mine, BYTES, MPI_CHAR, 1, TAG, MPI_COMM_WORLD));
        } else {
            memset(seen, 0, BYTES);
            OK(MPI_Recv(mine, BYTES, MPI_CHAR, 0, TAG, MPI_COMM_WORLD, &status));
            MPI_Get_count(&status, MPI_CHAR, &count);
            SAME(count, BYTES);
            expect(seen, way, BYTES, __LINE__);
        }
        if (!getenv("FASTPATH_CHECK")) {
            SAME(fake_calls("cuStreamSynchronize"), waits);
            CHECK(fake_registered_bytes() <= registered + 4 * MIB);
            CHECK(mine == host || rank == 1 || fake_most_queued(0) >= 2);
        }
    }
    /* A message that ends inside a piece leaves the rest of the buffer as it is. */
    memset(at(memory), 9, BYTES);
    if (rank == 0)
        OK(MPI_Send(host, 3 * MIB + 5, MPI_CHAR, 1, TAG, MPI_COMM_WORLD));
    else {
        OK(MPI_Recv(memory, BYTES, MPI_CHAR, 0, TAG, MPI_COMM_WORLD, &status));
        CHECK(!memcmp(at(memory), host, 3 * MIB + 5) || !"the message is wrong");
        SAME(at(memory)[3 * MIB + 5], 9);
        SAME(at(memory)[BYTES - 1], 9);
    }
    free(host);
    cuMemFree_v2((CUdeviceptr)memory);
}

/* Pinned memory is host memory: no copy by the driver. */
static void pinned(void)
{
    enum { BYTES = 50000 };
    static char out[BYTES], in[BYTES];
    SAME(cuMemHostRegister_v2(out, BYTES, 1), CUDA_SUCCESS);
    long before = fake_calls("cuMemcpyAsync");
    paint(out, 4, BYTES);
    OK(MPI_Sendrecv(out, BYTES, MPI_CHAR, rank, TAG, in, BYTES, MPI_CHAR, rank, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    expect(in, 4, BYTES, __LINE__);
    SAME(fake_calls("cuMemcpyAsync"), before);
    SAME(cuMemHostUnregister(out), CUDA_SUCCESS);
}

int main(int argc, char **argv)
{
    int is_late = argc > 1 && !strcmp(argv[1], "late");
    char *home = getenv("FASTPATH_RANK");
    if (!is_late)
        load_driver(home ? atoi(home) % 2 : 0);
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Barrier(MPI_COMM_WORLD);
    if (is_late) {
        CHECK(MPIX_Query_cuda_support() == 0);
        load_driver(rank % 2);
    }
    CHECK(MPIX_Query_cuda_support() == 1);
    pieces();
    for (int kind = FAKE_DEVICE; kind <= FAKE_MAPPED; kind++)
        contiguous(kind, kind, kind % 2);
    contiguous(-1, FAKE_DEVICE, 0);
    nonblocking(8);
    nonblocking(5000);
    nonblocking(300000);
    nonblocking(1500000);
    persistent(16);
    persistent(100000);
    persistent(6000001);
    others(8);
    others(100000);
    others(5000001);
    derived(1, 10);
    derived(7, 1);
    derived(300, 40);
    derived(50, 5000);
    edges();
    pinned();
    SAME(fake_primary_contexts(), 1);
    MPI_Finalize();
    return failures > 0;
}
