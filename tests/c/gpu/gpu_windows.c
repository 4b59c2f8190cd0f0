/* Windows over device memory: puts, gets and accumulates of contiguous and derived types from host and device memory, in
 * each kind of epoch, to other ranks and to the own rank; dynamic windows; ranks with memory of different kinds.
 *
 * usage: gpu_windows [fails]        fails: the driver cannot copy, so operations return errors
 *
 * test: only=build link=-ldl */
#include "../check.h"
#include "gpu.h"

static int next_rank, last_rank;

/* Memory of a window: of a device, or of the host if `kind` is negative. */
static int *window_memory(int count, int kind)
{
    size_t bytes = count * sizeof(int);
    return (int *)(kind < 0 ? calloc(count, sizeof(int)) : device_memory(bytes, kind, rank % 2, 0));
}

static int *see(int *memory, int kind)
{
    return kind < 0 ? memory : (int *)at(memory);
}

static void drop(int *memory, int kind)
{
    if (kind < 0)
        free(memory);
    else
        SAME(cuMemFree_v2((CUdeviceptr)memory), CUDA_SUCCESS);
}

/* Puts, gets and accumulates between fences, with an origin buffer of a kind. */
static void fences(MPI_Win win, int *own, int kind, int count, int origin_kind)
{
    int *out = window_memory(count, origin_kind), *in = window_memory(count, origin_kind);
    int *from = see(out, origin_kind), *to = see(in, origin_kind), *memory = see(own, kind);
    for (int i = 0; i < count; i++)
        from[i] = rank * 1000 + i;
    for (int peer = 0; peer < ranks; peer += ranks > 1 ? ranks - 1 : 1) {
        int target = (rank + peer) % ranks, source = (rank + ranks - peer) % ranks;
        MPI_Win_fence(0, win);
        OK(MPI_Put(out, count, MPI_INT, target, 1, count, MPI_INT, win));
        MPI_Win_fence(0, win);
        SAME(memory[1], source * 1000);
        SAME(memory[count], source * 1000 + count - 1);
        MPI_Win_fence(0, win);
        OK(MPI_Accumulate(out, count, MPI_INT, target, 1, count, MPI_INT, MPI_SUM, win));
        MPI_Win_fence(0, win);
        SAME(memory[count], 2 * (source * 1000 + count - 1));
        MPI_Win_fence(0, win);
        OK(MPI_Get(in, count, MPI_INT, target, 1, count, MPI_INT, win));
        MPI_Win_fence(0, win);
        for (int i = 0; i < count; i++)
            if (to[i] != 2 * (rank * 1000 + i)) {
                fail(__LINE__, "element %d is %d", i, to[i]);
                break;
            }
        SAME(memory[0], 0);
        MPI_Win_fence(0, win);
    }
    drop(out, origin_kind);
    drop(in, origin_kind);
}

/* Every third element at the target. The elements between stay as they are. */
static void derived(MPI_Win win, int *own, int kind, int count)
{
    int *memory = see(own, kind), *values = malloc(count * sizeof(int)), blocks = count / 3;
    MPI_Datatype column;
    OK(MPI_Type_vector(blocks, 1, 3, MPI_INT, &column));
    OK(MPI_Type_commit(&column));
    memset(memory, 0, count * sizeof(int));
    for (int i = 0; i < blocks; i++)
        values[i] = rank + i;
    MPI_Win_fence(0, win);
    OK(MPI_Put(values, blocks, MPI_INT, next_rank, 0, 1, column, win));
    MPI_Win_fence(0, win);
    OK(MPI_Accumulate(values, blocks, MPI_INT, next_rank, 1, 1, column, MPI_REPLACE, win));
    MPI_Win_fence(0, win);
    for (int i = 0; i + 2 < 3 * blocks; i++)
        SAME(memory[i], i % 3 == 2 ? 0 : last_rank + i / 3);
    memset(values, 0, blocks * sizeof(int));
    OK(MPI_Get(values, 1, column, next_rank, 0, 1, column, win));
    MPI_Win_fence(0, win);
    SAME(values[0], rank);
    if (blocks > 1)
        SAME(values[3], rank + 1);
    MPI_Type_free(&column);
    free(values);
}

/* Locks exclude each other, and accumulates of all ranks on one element are atomic. */
static void passive(MPI_Win win, int *own, int kind)
{
    enum { ROUNDS = 20 };
    int value, one = 1, before, unset = -1;
    MPI_Request requests[2];
    memset(see(own, kind), 0, 8 * sizeof(int));
    MPI_Barrier(MPI_COMM_WORLD);
    for (int i = 0; i < ROUNDS; i++) {
        MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, win);
        OK(MPI_Get(&value, 1, MPI_INT, 0, 0, 1, MPI_INT, win));
        OK(MPI_Win_flush(0, win));
        value++;
        OK(MPI_Put(&value, 1, MPI_INT, 0, 0, 1, MPI_INT, win));
        MPI_Win_unlock(0, win);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_lock_all(0, win);
    for (int i = 0; i < ROUNDS; i++) {
        OK(MPI_Fetch_and_op(&one, &before, MPI_INT, 0, 1, MPI_SUM, win));
        OK(MPI_Accumulate(&one, 1, MPI_INT, 0, 2, 1, MPI_INT, MPI_SUM, win));
        OK(MPI_Win_flush(0, win));
        CHECK(before >= i && before < ROUNDS * ranks);
    }
    struct { int value, place; } pair = {rank, rank}, old;
    OK(MPI_Get_accumulate(&pair, 1, MPI_2INT, &old, 1, MPI_2INT, 0, 4, 1, MPI_2INT, MPI_MAXLOC, win));
    /* Each rank takes its turn. */
    do {
        OK(MPI_Compare_and_swap(&(int){rank + 1}, &rank, &before, MPI_INT, 0, 3, win));
        OK(MPI_Win_flush(0, win));
    } while (before != rank);
    OK(MPI_Rput(&one, 1, MPI_INT, next_rank, 6, 1, MPI_INT, win, &requests[0]));
    OK(MPI_Wait(&requests[0], MPI_STATUS_IGNORE));
    OK(MPI_Win_flush_all(win));
    OK(MPI_Rget(&unset, 1, MPI_INT, next_rank, 6, 1, MPI_INT, win, &requests[1]));
    OK(MPI_Wait(&requests[1], MPI_STATUS_IGNORE));
    SAME(unset, 1);
    MPI_Win_unlock_all(win);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) {
        int *memory = see(own, kind);
        SAME(memory[0], ROUNDS * ranks);
        SAME(memory[1], ROUNDS * ranks);
        SAME(memory[2], ROUNDS * ranks);
        SAME(memory[3], ranks);
        SAME(memory[4], ranks - 1);
        SAME(memory[5], ranks - 1);
    }
    MPI_Barrier(MPI_COMM_WORLD);
}

static void post_start(MPI_Win win, int *own, int kind, int count)
{
    MPI_Group world, targets, origins;
    int *values = malloc(count * sizeof(int));
    for (int i = 0; i < count; i++)
        values[i] = 7 * rank + i;
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    MPI_Group_incl(world, 1, &next_rank, &targets);
    MPI_Group_incl(world, 1, &last_rank, &origins);
    OK(MPI_Win_post(origins, 0, win));
    OK(MPI_Win_start(targets, 0, win));
    OK(MPI_Put(values, count, MPI_INT, next_rank, 0, count, MPI_INT, win));
    OK(MPI_Win_complete(win));
    OK(MPI_Win_wait(win));
    SAME(see(own, kind)[count - 1], 7 * last_rank + count - 1);
    MPI_Group_free(&world);
    MPI_Group_free(&targets);
    MPI_Group_free(&origins);
    free(values);
}

static void window(int kind, int count)
{
    int *own = window_memory(count + 1, kind), **base, flag;
    MPI_Win win;
    OK(MPI_Win_create(own, (count + 1) * sizeof(int), sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &win));
    MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN);
    MPI_Win_get_attr(win, MPI_WIN_BASE, &base, &flag);
    CHECK(flag && (int *)base == own);
    fences(win, own, kind, count, -1);
    fences(win, own, kind, count, FAKE_DEVICE);
    if (count >= 8) {
        derived(win, own, kind, count);
        passive(win, own, kind);
    }
    post_start(win, own, kind, count);
    MPI_Win_lock(MPI_LOCK_SHARED, next_rank, 0, win);
    CLASS(MPI_Put(&count, 1, MPI_INT, next_rank, count + 1, 1, MPI_INT, win), MPI_ERR_RMA_RANGE);
    MPI_Win_unlock(next_rank, win);
    MPI_Win_free(&win);
    drop(own, kind);
}

static void dynamic(int count)
{
    int *own = window_memory(count, FAKE_DEVICE), *values = malloc(count * sizeof(int));
    MPI_Aint address, *all = malloc(ranks * sizeof *all);
    MPI_Win win;
    MPI_Get_address(own, &address);
    MPI_Allgather(&address, 1, MPI_AINT, all, 1, MPI_AINT, MPI_COMM_WORLD);
    OK(MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &win));
    OK(MPI_Win_attach(win, own, count * sizeof(int)));
    for (int i = 0; i < count; i++)
        values[i] = rank + i;
    for (int peer = 0; peer < ranks; peer++) {
        int target = (rank + peer) % ranks;
        MPI_Win_fence(0, win);
        OK(MPI_Put(values, count, MPI_INT, target, all[target], count, MPI_INT, win));
        MPI_Win_fence(0, win);
        SAME(see(own, FAKE_DEVICE)[count - 1], (rank + ranks - peer) % ranks + count - 1);
    }
    MPI_Win_fence(0, win);
    OK(MPI_Accumulate(values, count, MPI_INT, 0, all[0], count, MPI_INT, MPI_SUM, win));
    MPI_Win_fence(0, win);
    if (rank == 0)
        SAME(see(own, FAKE_DEVICE)[0], 1 % ranks + ranks * (ranks - 1) / 2);
    OK(MPI_Win_detach(win, own));
    MPI_Win_free(&win);
    drop(own, FAKE_DEVICE);
    free(values);
    free(all);
}

/* The driver fails at the target. The origin gets an error of the operation or of its completion. */
static void fails(void)
{
    int *own = window_memory(4, FAKE_DEVICE), value = 1;
    MPI_Win win;
    OK(MPI_Win_create(own, 4 * sizeof(int), sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &win));
    MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN);
    for (int target = 0; target < ranks; target++) {
        MPI_Win_lock(MPI_LOCK_SHARED, target, 0, win);
        int code = MPI_Put(&value, 1, MPI_INT, target, 0, 1, MPI_INT, win);
        if (!code)
            code = MPI_Win_flush(target, win);
        SAME(class_of(code), MPI_ERR_RMA_RANGE);
        code = MPI_Get(&value, 1, MPI_INT, target, 0, 1, MPI_INT, win);
        if (!code)
            code = MPI_Win_flush(target, win);
        SAME(class_of(code), MPI_ERR_RMA_RANGE);
        MPI_Win_unlock(target, win);
    }
    MPI_Win_free(&win);
}

int main(int argc, char **argv)
{
    load_driver(0);
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    next_rank = (rank + 1) % ranks;
    last_rank = (rank + ranks - 1) % ranks;
    if (argc > 1) {
        fails();
        MPI_Finalize();
        return failures > 0;
    }
    for (int kind = FAKE_DEVICE; kind <= FAKE_MAPPED; kind++)
        window(kind, 10);
    int counts[] = {1, 1000, 30000, 400000};
    for (int i = 0; i < 4; i++) {
        window(FAKE_DEVICE, counts[i]);
        window(rank % 2 ? -1 : FAKE_DEVICE, counts[i]);
        dynamic(counts[i]);
    }
    SAME(fake_primary_contexts(), 1);
    MPI_Finalize();
    return failures > 0;
}
