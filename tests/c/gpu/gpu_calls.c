/* Collective calls in each form, one-sided operations, files and local calls on device memory, and calls that refuse it.
 *
 * usage: gpu_calls FILE
 *
 * test: only=build link=-ldl */
#include "../check.h"
#include "gpu.h"

static int *ints(int count, int device)
{
    return (int *)device_memory(count * sizeof(int), FAKE_DEVICE, device, 0x11);
}

static int *see(int *memory)
{
    return (int *)at(memory);
}

/* Waits for a nonblocking call, or starts a persistent call twice. */
static void complete(MPI_Request *request, int is_persistent)
{
    if (is_persistent) {
        OK(MPI_Start(request));
        OK(MPI_Wait(request, MPI_STATUS_IGNORE));
        OK(MPI_Start(request));
        OK(MPI_Wait(request, MPI_STATUS_IGNORE));
        OK(MPI_Request_free(request));
    } else
        OK(MPI_Wait(request, MPI_STATUS_IGNORE));
}

static void collectives(int count)
{
    MPI_Request request;
    int *one = ints(count, 0), *all = ints(count * ranks, 1), *each = ints(count * ranks, 0);
    for (int form = 0; form < 3; form++) {
        for (int i = 0; i < count; i++)
            see(one)[i] = rank * 1000 + i;
        for (int i = 0; i < count * ranks; i++)
            see(all)[i] = -1;
        if (form == 0)
            OK(MPI_Allreduce(one, all, count, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
        else if (form == 1)
            OK(MPI_Iallreduce(one, all, count, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &request));
        else
            OK(MPI_Allreduce_init(one, all, count, MPI_INT, MPI_SUM, MPI_COMM_WORLD, MPI_INFO_NULL, &request));
        if (form)
            complete(&request, form == 2);
        for (int i = 0; i < count; i++)
            SAME(see(all)[i], 1000 * ranks * (ranks - 1) / 2 + i * ranks);
        SAME(see(one)[0], rank * 1000);

        if (form == 0)
            OK(MPI_Bcast(one, count, MPI_INT, ranks - 1, MPI_COMM_WORLD));
        else if (form == 1)
            OK(MPI_Ibcast(one, count, MPI_INT, ranks - 1, MPI_COMM_WORLD, &request));
        else
            OK(MPI_Bcast_init(one, count, MPI_INT, ranks - 1, MPI_COMM_WORLD, MPI_INFO_NULL, &request));
        if (form)
            complete(&request, form == 2);
        SAME(see(one)[count - 1], (ranks - 1) * 1000 + count - 1);

        see(one)[0] = rank;
        if (form == 0)
            OK(MPI_Allgather(one, count, MPI_INT, all, count, MPI_INT, MPI_COMM_WORLD));
        else if (form == 1)
            OK(MPI_Iallgather(one, count, MPI_INT, all, count, MPI_INT, MPI_COMM_WORLD, &request));
        else
            OK(MPI_Allgather_init(one, count, MPI_INT, all, count, MPI_INT, MPI_COMM_WORLD, MPI_INFO_NULL, &request));
        if (form)
            complete(&request, form == 2);
        for (int i = 0; i < ranks; i++)
            SAME(see(all)[i * count], i);

        OK(MPI_Alltoall(all, count, MPI_INT, each, count, MPI_INT, MPI_COMM_WORLD));
        for (int i = 0; i < ranks; i++)
            SAME(see(each)[i * count], rank);
        OK(MPI_Allreduce(MPI_IN_PLACE, each, count, MPI_INT, MPI_MAX, MPI_COMM_WORLD));
        SAME(see(each)[0], ranks - 1);
        OK(MPI_Reduce(rank ? one : MPI_IN_PLACE, rank ? NULL : one, count, MPI_INT, MPI_MAX, 0, MPI_COMM_WORLD));
        SAME(see(one)[0], rank ? rank : ranks - 1);
        OK(MPI_Reduce_scatter_block(all, one, count, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
        SAME(see(one)[0], ranks * rank);
        OK(MPI_Scan(one, each, count, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
        SAME(see(each)[0], ranks * rank * (rank + 1) / 2);
        OK(MPI_Scatter(all, count, MPI_INT, one, count, MPI_INT, 0, MPI_COMM_WORLD));
        SAME(see(one)[0], rank);

        /* Gather with gaps, which stay as they are. */
        int counts[64], displacements[64];
        int *wide = ints((count + 2) * ranks, 1);
        for (int i = 0; i < ranks; i++) {
            counts[i] = count;
            displacements[i] = (ranks - 1 - i) * (count + 2);
        }
        OK(MPI_Gatherv(one, count, MPI_INT, wide, counts, displacements, MPI_INT, 0, MPI_COMM_WORLD));
        for (int i = 0; i < ranks && !rank; i++) {
            SAME(see(wide)[displacements[i]], i);
            SAME(see(wide)[displacements[i] + count], 0x11111111);
        }
        OK(MPI_Allgatherv(one, count, MPI_INT, wide, counts, displacements, MPI_INT, MPI_COMM_WORLD));
        SAME(see(wide)[displacements[ranks - 1]], ranks - 1);
        cuMemFree_v2((CUdeviceptr)wide);
    }
    cuMemFree_v2((CUdeviceptr)one);
    cuMemFree_v2((CUdeviceptr)all);
    cuMemFree_v2((CUdeviceptr)each);
}

static void one_sided(int count)
{
    int *host, *one = ints(count, 0), *two = ints(count, 1);
    MPI_Win win;
    MPI_Request request;
    int peer = (rank + 1) % ranks, before = (rank + ranks - 1) % ranks;
    OK(MPI_Win_allocate(2 * count * sizeof(int), sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &host, &win));
    for (int i = 0; i < count; i++) {
        see(one)[i] = rank + i;
        host[count + i] = 7;
    }
    MPI_Win_fence(0, win);
    OK(MPI_Put(one, count, MPI_INT, peer, 0, count, MPI_INT, win));
    memset(see(one), 0, count * sizeof(int));
    MPI_Win_fence(0, win);
    SAME(host[count - 1], before + count - 1);
    OK(MPI_Get(two, count, MPI_INT, peer, 0, count, MPI_INT, win));
    MPI_Win_fence(0, win);
    OK(MPI_Accumulate(two, count, MPI_INT, rank, count, count, MPI_INT, MPI_SUM, win));
    MPI_Win_fence(0, win);
    SAME(see(two)[count - 1], rank + count - 1);
    SAME(host[2 * count - 1], 7 + rank + count - 1);
    MPI_Win_lock_all(0, win);
    see(one)[0] = 1;
    OK(MPI_Fetch_and_op(one, two, MPI_INT, peer, 0, MPI_SUM, win));
    MPI_Win_flush(peer, win);
    SAME(see(two)[0], rank);
    OK(MPI_Rget(two, 1, MPI_INT, peer, 0, 1, MPI_INT, win, &request));
    OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    MPI_Win_flush(peer, win);
    SAME(see(two)[0], rank + 1);
    see(one)[0] = rank + 50;
    if (count > 1)
        OK(MPI_Compare_and_swap(one, two, two + 1, MPI_INT, peer, 0, win));
    MPI_Win_unlock_all(win);
    MPI_Barrier(MPI_COMM_WORLD);
    SAME(host[0], count > 1 ? before + 50 : before + 1);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_free(&win);
    cuMemFree_v2((CUdeviceptr)one);
    cuMemFree_v2((CUdeviceptr)two);
}

static void files(const char *name, int count)
{
    MPI_File file;
    MPI_Status status;
    MPI_Request request;
    int got, *one = ints(count, 0), *two = ints(count + 1, 1), bytes = count * sizeof(int);
    for (int i = 0; i < count; i++)
        see(one)[i] = rank * 3 + i;
    OK(MPI_File_open(MPI_COMM_WORLD, name, MPI_MODE_CREATE | MPI_MODE_RDWR | MPI_MODE_DELETE_ON_CLOSE, MPI_INFO_NULL, &file));
    OK(MPI_File_write_at_all(file, (MPI_Offset)rank * bytes, one, count, MPI_INT, &status));
    OK(MPI_File_read_at(file, (MPI_Offset)rank * bytes, two, count, MPI_INT, &status));
    SAME(see(two)[count - 1], rank * 3 + count - 1);
    MPI_Barrier(MPI_COMM_WORLD);
    OK(MPI_File_iread_at(file, (MPI_Offset)(ranks - 1) * bytes, two, count + 1, MPI_INT, &request));
    OK(MPI_Wait(&request, &status));
    MPI_Get_count(&status, MPI_INT, &got);
    SAME(got, count);
    SAME(see(two)[0], (ranks - 1) * 3);
    SAME(see(two)[count], 0x11111111);
    memset(see(two), 0, bytes);
    OK(MPI_File_iread_at_all(file, (MPI_Offset)rank * bytes, two, count, MPI_INT, &request));
    OK(MPI_Wait(&request, &status));
    SAME(see(two)[0], rank * 3);
    memset(see(two), 0, bytes);
    OK(MPI_File_read_at_all_begin(file, (MPI_Offset)rank * bytes, two, count, MPI_INT));
    OK(MPI_File_read_at_all_end(file, two, &status));
    SAME(see(two)[0], rank * 3);
    MPI_File_close(&file);
    cuMemFree_v2((CUdeviceptr)one);
    cuMemFree_v2((CUdeviceptr)two);
}

static void local(int count)
{
    int position = 0, bytes = count * sizeof(int);
    int *one = ints(count, 0), *two = ints(count, 1), *packed = ints(count, 0);
    for (int i = 0; i < count; i++)
        see(one)[i] = i;
    OK(MPI_Pack(one, count, MPI_INT, packed, bytes, &position, MPI_COMM_WORLD));
    SAME(position, bytes);
    position = 0;
    OK(MPI_Unpack(packed, bytes, &position, two, count, MPI_INT, MPI_COMM_WORLD));
    SAME(see(two)[count - 1], count - 1);
    OK(MPI_Reduce_local(one, two, count, MPI_INT, MPI_SUM));
    SAME(see(two)[count - 1], 2 * (count - 1));
    cuMemFree_v2((CUdeviceptr)one);
    cuMemFree_v2((CUdeviceptr)two);
    cuMemFree_v2((CUdeviceptr)packed);
}

/* Addresses in the datatype: parts in two allocations, and one in host memory. */
static void absolute(int count)
{
    int *one = ints(count, 0), *two = ints(count, 1), *host = calloc(count, sizeof(int)), lengths[] = {count, count, count};
    MPI_Aint addresses[3];
    MPI_Datatype datatype;
    MPI_Get_address(one, &addresses[0]);
    MPI_Get_address(host, &addresses[1]);
    MPI_Get_address(two, &addresses[2]);
    MPI_Type_create_hindexed(3, lengths, addresses, MPI_INT, &datatype);
    MPI_Type_commit(&datatype);
    see(one)[count - 1] = host[count - 1] = see(two)[count - 1] = rank + 1;
    OK(MPI_Bcast(MPI_BOTTOM, 1, datatype, ranks - 1, MPI_COMM_WORLD));
    SAME(see(one)[count - 1], ranks);
    SAME(host[count - 1], ranks);
    SAME(see(two)[count - 1], ranks);
    MPI_Type_free(&datatype);
    free(host);
    cuMemFree_v2((CUdeviceptr)one);
    cuMemFree_v2((CUdeviceptr)two);
}

/* Three partitions sent, and two received. */
static void partitioned(int count)
{
    MPI_Request requests[2];
    int arrived = 0, *one = ints(6 * count, 0), *two = ints(6 * count, 1);
    OK(MPI_Psend_init(one, 3, 2 * count, MPI_INT, (rank + 1) % ranks, 3, MPI_COMM_WORLD, MPI_INFO_NULL, &requests[0]));
    OK(MPI_Precv_init(two, 2, 3 * count, MPI_INT, (rank + ranks - 1) % ranks, 3, MPI_COMM_WORLD, MPI_INFO_NULL,
                      &requests[1]));
    for (int round = 0; round < 2; round++) {
        OK(MPI_Startall(2, requests));
        for (int part = 0; part < 3; part++) {
            for (int i = 0; i < 2 * count; i++)
                see(one)[2 * part * count + i] = round * 100 + part;
            OK(MPI_Pready(part, requests[0]));
        }
        while (!arrived)
            OK(MPI_Parrived(requests[1], 1, &arrived));
        SAME(see(two)[6 * count - 1], round * 100 + 2);
        OK(MPI_Waitall(2, requests, MPI_STATUSES_IGNORE));
        for (int i = 0; i < 6 * count; i++)
            if (see(two)[i] != round * 100 + i / (2 * count)) {
                fail(__LINE__, "element %d is %d", i, see(two)[i]);
                break;
            }
        arrived = 0;
    }
    MPI_Request_free(&requests[0]);
    MPI_Request_free(&requests[1]);
    cuMemFree_v2((CUdeviceptr)one);
    cuMemFree_v2((CUdeviceptr)two);
}

/* Communicators and windows support memory of devices. */
static void kinds(void)
{
    char value[100];
    int found, length = sizeof value, *memory;
    MPI_Info info;
    MPI_Win win;
    MPI_Comm_get_info(MPI_COMM_WORLD, &info);
    MPI_Info_get_string(info, "mpi_memory_alloc_kinds", &length, value, &found);
    CHECK(found && !strcmp(value, "system,mpi,cuda:host,cuda:device,cuda:managed"));
    MPI_Info_free(&info);
    MPI_Win_allocate(4, 4, MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &win);
    MPI_Win_get_info(win, &info);
    length = sizeof value;
    MPI_Info_get_string(info, "mpi_memory_alloc_kinds", &length, value, &found);
    CHECK(found && !strcmp(value, "system,mpi,cuda:host,cuda:device,cuda:managed"));
    MPI_Info_free(&info);
    MPI_Win_free(&win);
}

/* Calls that need host memory refuse the address with a text; they do not crash. */
static void refused(void)
{
    char text[MPI_MAX_ERROR_STRING];
    int length, code, *one = ints(16, 1);
    code = MPI_Buffer_attach(one, 64);
    SAME(class_of(code), MPI_ERR_BUFFER);
    MPI_Error_string(code, text, &length);
    CHECK(strstr(text, "device memory of CUDA device 1"));
    cuMemFree_v2((CUdeviceptr)one);
}

int main(int argc, char **argv)
{
    load_driver(0);
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    int counts[] = {1, 3, 1000, 40000, 60000};
    for (int i = 0; i < 5; i++) {
        collectives(counts[i]);
        one_sided(counts[i]);
        files(argv[1], counts[i]);
        local(counts[i]);
        partitioned(counts[i]);
        absolute(counts[i]);
    }
    kinds();
    refused();
    MPI_Finalize();
    return failures > 0;
}
