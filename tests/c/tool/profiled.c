/* Calls functions of every chapter and counts the calls. If a profiling library is loaded (tests/jobs/profiling.py
 * builds one that wraps everything), its counts must be equal: each call once, and none that the library made itself.
 * Without one it is a plain program.
 * test: ranks=1,2,3,4 variants=none */
#include "../check.h"

/* Interface of the profiling library: number of calls of `name`, -1 if unknown; all names, terminated by null. */
extern long profile_calls(const char *name) __attribute__((weak));
extern const char *const *profile_names(void) __attribute__((weak));

#define MOST 200
static struct { const char *name; long calls; } expected[MOST];

static void expect(const char *name)
{
    int i = 0;
    while (expected[i].name && strcmp(expected[i].name, name))
        i++;
    if (i == MOST - 1)
        exit(4);
    expected[i].name = name;
    expected[i].calls++;
}

static long expected_calls(const char *name)
{
    for (int i = 0; expected[i].name; i++)
        if (!strcmp(expected[i].name, name))
            return expected[i].calls;
    return 0;
}

/* Calls MPI_`function` and expects the profiler to count it. Checks use PMPI_ names, which it must not count. */
#define CALL(function, ...)                                                 \
    do {                                                                    \
        expect("MPI_" #function);                                           \
        if (MPI_##function(__VA_ARGS__) != MPI_SUCCESS)                     \
            fail(__LINE__, "MPI_" #function " fails");                      \
    } while (0)

static MPI_Comm world = MPI_COMM_WORLD;
static int next, before;

static void send_and_receive(int bytes)
{
    char *out = allocate((size_t)bytes), *in = allocate((size_t)bytes);
    MPI_Request request, both[2];
    MPI_Status status, statuses[2];
    MPI_Message message;
    int flag = 0, index, count, indices[2];
    memset(out, 1, (size_t)bytes);
    CALL(Irecv, in, bytes, MPI_BYTE, before, 1, world, &request);
    CALL(Send, out, bytes, MPI_BYTE, next, 1, world);
    CALL(Wait, &request, &status);
    CALL(Get_count, &status, MPI_BYTE, &count);
    CALL(Irecv, in, bytes, MPI_BYTE, before, 1, world, &request);
    CALL(Ssend, out, bytes, MPI_BYTE, next, 1, world);
    CALL(Waitall, 1, &request, &status);
    CALL(Irecv, in, bytes, MPI_BYTE, before, 1, world, &request);
    CALL(Rsend, out, bytes, MPI_BYTE, next, 1, world);
    CALL(Waitany, 1, &request, &index, &status);
    CALL(Isend, out, bytes, MPI_BYTE, next, 1, world, &both[0]);
    CALL(Issend, out, bytes, MPI_BYTE, next, 1, world, &both[1]);
    CALL(Probe, before, 1, world, &status);
    CALL(Recv, in, bytes, MPI_BYTE, before, 1, world, &status);
    CALL(Mprobe, before, 1, world, &message, &status);
    CALL(Mrecv, in, bytes, MPI_BYTE, &message, &status);
    CALL(Waitall, 2, both, statuses);
    CALL(Iprobe, before, 2, world, &flag, &status);
    CALL(Improbe, before, 2, world, &flag, &message, &status);
    CALL(Sendrecv, out, bytes, MPI_BYTE, next, 3, in, bytes, MPI_BYTE, before, 3, world, &status);
    CALL(Sendrecv_replace, out, bytes, MPI_BYTE, next, 3, before, 3, world, &status);
    CALL(Isendrecv, out, bytes, MPI_BYTE, next, 3, in, bytes, MPI_BYTE, before, 3, world, &request);
    CALL(Wait, &request, &status);
    CALL(Send_init, out, bytes, MPI_BYTE, next, 4, world, &both[0]);
    CALL(Recv_init, in, bytes, MPI_BYTE, before, 4, world, &both[1]);
    CALL(Startall, 2, both);
    CALL(Waitall, 2, both, statuses);
    CALL(Start, &both[0]);
    CALL(Start, &both[1]);
    for (int done = 0; done < 2; done += count)
        CALL(Waitsome, 2, both, &count, indices, statuses);
    CALL(Request_free, &both[0]);
    CALL(Request_free, &both[1]);
    int room = bytes + MPI_BSEND_OVERHEAD;
    char *buffer = allocate((size_t)room);
    CALL(Buffer_attach, buffer, room);
    CALL(Bsend, out, bytes, MPI_BYTE, next, 5, world);
    CALL(Recv_c, in, bytes, MPI_BYTE, before, 5, world, &status);
    CALL(Buffer_detach, &buffer, &room);
    CALL(Irecv, in, bytes, MPI_BYTE, before, 6, world, &request);
    CALL(Cancel, &request);
    CALL(Test, &request, &flag, &status);
    CALL(Test_cancelled, &status, &flag);
    free(buffer);
    free(in);
    free(out);
}

static void multiply(void *in, void *inout, int *len, MPI_Datatype *type)
{
    (void)type;
    for (int i = 0; i < *len; i++)
        ((int *)inout)[i] *= ((int *)in)[i];
}

static void collect(int count)
{
    size_t all = (size_t)count * (size_t)ranks;
    int *one = allocate(sizeof(int) * all), *many = allocate(sizeof(int) * all);
    int *counts = allocate(sizeof(int) * (size_t)ranks), *places = allocate(sizeof(int) * (size_t)ranks);
    MPI_Op op;
    for (size_t i = 0; i < all; i++)
        one[i] = many[i] = 1;
    for (int i = 0; i < ranks; i++)
        counts[i] = count, places[i] = i * count;
    CALL(Barrier, world);
    CALL(Bcast, one, count, MPI_INT, 0, world);
    CALL(Gather, one, count, MPI_INT, many, count, MPI_INT, 0, world);
    CALL(Gatherv, one, count, MPI_INT, many, counts, places, MPI_INT, 0, world);
    CALL(Scatter, many, count, MPI_INT, one, count, MPI_INT, 0, world);
    CALL(Scatterv, many, counts, places, MPI_INT, one, count, MPI_INT, 0, world);
    CALL(Allgather, one, count, MPI_INT, many, count, MPI_INT, world);
    CALL(Allgatherv, one, count, MPI_INT, many, counts, places, MPI_INT, world);
    CALL(Alltoall, one, count, MPI_INT, many, count, MPI_INT, world);
    CALL(Alltoallv, one, counts, places, MPI_INT, many, counts, places, MPI_INT, world);
    CALL(Reduce, one, many, count, MPI_INT, MPI_SUM, 0, world);
    CALL(Allreduce, one, many, count, MPI_INT, MPI_SUM, world);
    CALL(Reduce_scatter_block, one, many, count, MPI_INT, MPI_MAX, world);
    CALL(Reduce_scatter, one, many, counts, MPI_INT, MPI_MAX, world);
    CALL(Scan, one, many, count, MPI_INT, MPI_SUM, world);
    CALL(Exscan, one, many, count, MPI_INT, MPI_SUM, world);
    CALL(Op_create, multiply, 1, &op);
    CALL(Allreduce, one, many, count, MPI_INT, op, world);
    CALL(Reduce_local, one, many, count, MPI_INT, op);
    CALL(Op_free, &op);
    free(places);
    free(counts);
    free(many);
    free(one);
}

static int copies;
static int copy_attribute(MPI_Comm comm, int key, void *extra, void *in, void *out, int *flag)
{
    (void)comm, (void)key, (void)extra;
    *(void **)out = in;
    *flag = 1;
    copies++;
    return MPI_SUCCESS;
}

static void make_communicators(void)
{
    MPI_Comm dup, part, made, cart;
    MPI_Group group, some;
    MPI_Info info;
    int key, flag, size, one = 0, dims[1] = {0}, periods[1] = {1}, from, to;
    void *value;
    CALL(Comm_create_keyval, copy_attribute, MPI_COMM_NULL_DELETE_FN, &key, NULL);
    CALL(Comm_set_attr, world, key, &one);
    CALL(Comm_dup, world, &dup);
    CALL(Comm_get_attr, dup, key, &value, &flag);
    if (!flag || copies != 1)
        fail(__LINE__, "the attribute was copied %d times", copies);
    CALL(Comm_delete_attr, world, key);
    CALL(Comm_free_keyval, &key);
    CALL(Comm_split, dup, rank % 2, rank, &part);
    CALL(Comm_group, dup, &group);
    CALL(Group_incl, group, 1, &one, &some);
    CALL(Comm_create, dup, some, &made);
    if (made != MPI_COMM_NULL)
        CALL(Comm_free, &made);
    CALL(Group_free, &some);
    CALL(Group_free, &group);
    CALL(Dims_create, ranks, 1, dims);
    CALL(Cart_create, dup, 1, dims, periods, 0, &cart);
    CALL(Cart_shift, cart, 0, 1, &from, &to);
    CALL(Comm_free, &cart);
    CALL(Comm_size, part, &size);
    CALL(Comm_free, &part);
    CALL(Comm_free, &dup);
    CALL(Info_create, &info);
    CALL(Info_set, info, "key", "value");
    CALL(Info_free, &info);
}

static void make_types(void)
{
    MPI_Datatype column;
    int data[16] = {0}, size, position = 0;
    char packed[64];
    void *memory;
    CALL(Type_vector, 4, 1, 4, MPI_INT, &column);
    CALL(Type_commit, &column);
    CALL(Type_size, column, &size);
    CALL(Sendrecv, data, 1, column, next, 1, data + 1, 1, column, before, 1, world, MPI_STATUS_IGNORE);
    CALL(Pack, data, 1, column, packed, (int)sizeof packed, &position, world);
    position = 0;
    CALL(Unpack, packed, (int)sizeof packed, &position, data, 1, column, world);
    CALL(Bcast, data, 1, column, 0, world);
    CALL(Type_free, &column);
    CALL(Alloc_mem, 4096, MPI_INFO_NULL, &memory);
    CALL(Free_mem, memory);
}

/* Errors, which are fatal by default, are returned here. */
static void err(void)
{
    int value = 0, class;
    CALL(Comm_set_errhandler, world, MPI_ERRORS_RETURN);
    expect("MPI_Send");
    int code = MPI_Send(&value, 1, MPI_INT, ranks, 0, world);
    CALL(Error_class, code, &class);
    if (class != MPI_ERR_RANK)
        fail(__LINE__, "class %d", class);
    CALL(Comm_set_errhandler, world, MPI_ERRORS_ARE_FATAL);
}

int main(int argc, char **argv)
{
    int wanted = argc > 1 && !strcmp(argv[1], "profiled"), initialized;
    double since;
    CALL(Initialized, &initialized);
    CALL(Init, &argc, &argv);
    CALL(Comm_rank, world, &rank);
    CALL(Comm_size, world, &ranks);
    next = (rank + 1) % ranks;
    before = (rank + ranks - 1) % ranks;
    expect("MPI_Wtime");
    since = MPI_Wtime();
    int sizes[] = {0, 8, 48, 4000, 100000, 2000000};
    for (int i = 0; i < 6; i++)
        send_and_receive(sizes[i]);
    collect(1);
    collect(50000);
    make_communicators();
    make_types();
    err();
    expect("MPI_Wtime");
    if (MPI_Wtime() < since)
        fail(__LINE__, "time goes backwards");
    CALL(Finalize);
    if (wanted != (profile_calls != NULL))
        fail(__LINE__, "%s", wanted ? "there is no profiler" : "there is a profiler");
    if (!profile_calls)
        return failures != 0;
    int seen = 0;
    for (const char *const *name = profile_names(); *name; name++) {
        seen += expected_calls(*name) > 0;
        if (profile_calls(*name) != expected_calls(*name))
            fail(__LINE__, "%s was seen %ld times and called %ld times", *name, profile_calls(*name), expected_calls(*name));
    }
    for (int i = 0; expected[i].name; i++)
        if (profile_calls(expected[i].name) < 0)
            fail(__LINE__, "%s is not wrapped", expected[i].name);
    if (seen < 80)
        fail(__LINE__, "only %d functions were called", seen);
    return failures != 0;
}
