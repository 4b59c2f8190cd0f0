/* Programs with one mistake each, named by the first argument, for FASTPATH_CHECK=1.
 * test: only=build */
#include <mpi.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int rank, size;
static const char *how;
static int ints[128];
static float floats[64];
static double doubles[1 << 17];

static int is(const char *name)
{
    return strcmp(how, name) == 0;
}

/* Rank 0 sends ints, rank 1 receives floats. */
static void exchange_other_types(void)
{
    MPI_Comm world = MPI_COMM_WORLD;
    MPI_Request request;
    MPI_Status status;
    MPI_Message message;
    if (rank == 0) {
        if (is("types-isend")) {
            MPI_Isend(ints, 10, MPI_INT, 1, 5, world, &request);
            MPI_Wait(&request, MPI_STATUS_IGNORE);
        } else if (is("types-bsend")) {
            int room = 1000 + MPI_BSEND_OVERHEAD;
            void *buffer = malloc(room);
            MPI_Buffer_attach(buffer, room);
            MPI_Bsend(ints, 10, MPI_INT, 1, 5, world);
            MPI_Buffer_detach(&buffer, &room);
            free(buffer);
        } else if (is("types-start")) {
            MPI_Send_init(ints, 10, MPI_INT, 1, 5, world, &request);
            MPI_Start(&request);
            MPI_Wait(&request, MPI_STATUS_IGNORE);
            MPI_Request_free(&request);
        } else if (is("types-large")) {
            MPI_Send(doubles, 1 << 17, MPI_DOUBLE, 1, 5, world);
        } else {
            MPI_Send(ints, 10, MPI_INT, 1, 5, world);
        }
    } else if (rank == 1) {
        if (is("types-irecv")) {
            MPI_Irecv(floats, 64, MPI_FLOAT, MPI_ANY_SOURCE, MPI_ANY_TAG, world, &request);
            MPI_Wait(&request, &status);
        } else if (is("types-mrecv")) {
            MPI_Mprobe(0, 5, world, &message, &status);
            MPI_Mrecv(floats, 64, MPI_FLOAT, &message, &status);
        } else if (is("types-large")) {
            MPI_Recv(doubles, 1 << 17, MPI_INT64_T, 0, 5, world, &status);
        } else {
            MPI_Recv(floats, 64, MPI_FLOAT, 0, 5, world, &status);
        }
        int count, bytes = is("types-large") ? 8 << 17 : 40;
        MPI_Get_count(&status, MPI_BYTE, &count);
        if (count != bytes)
            printf("%d bytes instead of %d\n", count, bytes);
    }
}

/* An int and a double against two doubles' worth of other types. */
static void exchange_other_structs(void)
{
    int lengths[] = {1, 1};
    MPI_Aint at[] = {0, 8};
    MPI_Datatype sent, received;
    MPI_Type_create_struct(2, lengths, at, (MPI_Datatype[]){MPI_INT, MPI_DOUBLE}, &sent);
    MPI_Type_create_struct(2, lengths, at, (MPI_Datatype[]){MPI_FLOAT, MPI_DOUBLE}, &received);
    MPI_Type_commit(&sent);
    MPI_Type_commit(&received);
    MPI_Type_set_name(received, "particle");
    if (rank == 0)
        MPI_Send(doubles, 3, sent, 1, 5, MPI_COMM_WORLD);
    else if (rank == 1)
        MPI_Recv(doubles, 3, received, 0, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Type_free(&sent);
    MPI_Type_free(&received);
}

static int query(void *state, MPI_Status *status)
{
    (void)state, (void)status;
    return MPI_SUCCESS;
}
static int release(void *state)
{
    (void)state;
    return MPI_SUCCESS;
}
static int release_early(void *state, int complete)
{
    (void)complete;
    return release(state);
}

/* What is left at MPI_Finalize. */
static void leave(void)
{
    MPI_Comm world = MPI_COMM_WORLD;
    MPI_Request request;
    int other = 1 - rank;
    if (is("left-irecv") && rank == 1)
        MPI_Irecv(ints, 10, MPI_INT, 0, 7, world, &request);
    if (is("left-any") && rank == 1)
        MPI_Irecv(ints, 10, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, world, &request);
    if (is("left-done")) {
        if (rank == 1)
            MPI_Irecv(ints, 10, MPI_INT, 0, 7, world, &request);
        MPI_Barrier(world);
        if (rank == 0)
            MPI_Send(ints, 10, MPI_INT, 1, 7, world);
        MPI_Barrier(world);
    }
    if (is("left-short") && rank == 0)
        MPI_Send(ints, 10, MPI_INT, other, 7, world);
    if (is("left-large") && rank == 0) {
        MPI_Isend(doubles, 1 << 17, MPI_DOUBLE, other, 7, world, &request);
        MPI_Request_free(&request);
    }
    if (is("left-many") && rank == 0)
        for (int i = 0; i < 1000; i++)
            MPI_Send(ints, 10, MPI_INT, other, i, world);
    if (is("left-dup")) {
        MPI_Comm dup;
        MPI_Comm_dup(world, &dup);
        MPI_Comm_set_name(dup, "halo");
        if (rank == 0)
            MPI_Send(ints, 3, MPI_INT, other, 1, dup);
    }
    if (is("left-mprobe")) {
        MPI_Message message;
        if (rank == 0)
            MPI_Send(ints, 3, MPI_INT, other, 1, world);
        else if (rank == 1)
            MPI_Mprobe(0, 1, world, &message, MPI_STATUS_IGNORE);
    }
    if (is("left-ibarrier"))
        MPI_Ibarrier(world, &request);
    if (is("left-inactive"))
        MPI_Barrier_init(world, MPI_INFO_NULL, &request);
    if (is("left-started")) {
        MPI_Barrier_init(world, MPI_INFO_NULL, &request);
        MPI_Start(&request);
    }
    if (is("left-idup")) {
        MPI_Comm dup;
        MPI_Comm_idup(world, &dup, &request);
    }
    if (is("left-psend") && rank == 0) {
        MPI_Psend_init(ints, 1, 10, MPI_INT, other, 7, world, MPI_INFO_NULL, &request);
        MPI_Start(&request);
    }
    if (is("left-precv") && rank == 1) {
        MPI_Precv_init(ints, 1, 10, MPI_INT, other, 7, world, MPI_INFO_NULL, &request);
        MPI_Start(&request);
    }
    if (is("part-types") && rank == 0) {
        MPI_Psend_init(ints, 2, 10, MPI_INT, other, 7, world, MPI_INFO_NULL, &request);
        MPI_Start(&request);
        MPI_Pready_range(0, 1, request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        MPI_Request_free(&request);
    }
    if (is("part-types") && rank == 1) {
        MPI_Precv_init(floats, 4, 5, MPI_FLOAT, other, 7, world, MPI_INFO_NULL, &request);
        MPI_Start(&request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        MPI_Request_free(&request);
    }
    if (is("left-isendrecv") && rank == 1)
        MPI_Isendrecv(ints, 0, MPI_INT, MPI_PROC_NULL, 7, ints, 10, MPI_INT, 0, 7, world, &request);
    if (is("left-grequest") && rank == 1)
        MPI_Grequest_start(query, release, release_early, NULL, &request);
    if (is("left-freed")) {
        MPI_Comm dup;
        MPI_Comm_dup(world, &dup);
        if (rank == 0)
            MPI_Send(ints, 3, MPI_INT, other, 1, dup);
        MPI_Barrier(world);
        MPI_Comm_free(&dup);
    }
    if (is("left-late") && rank == 0) {
        /* The other one is in MPI_Finalize by now. */
        for (double begin = MPI_Wtime(); MPI_Wtime() < begin + 0.3;)
            ;
        MPI_Send(ints, 10, MPI_INT, other, 7, world);
    }
    if (strncmp(how, "left", 4) == 0 && !is("left-late"))
        MPI_Barrier(world); /* nobody sends to one that has gone */
}

/* Collective calls whose arguments do not agree. */
static void disagree(void)
{
    MPI_Comm world = MPI_COMM_WORLD;
    int last = rank == size - 1;
    if (is("coll-type"))
        MPI_Bcast(floats, 10, last ? MPI_INT : MPI_FLOAT, 0, world);
    if (is("coll-gather"))
        MPI_Gather(last ? (void *)ints : floats, 2, last ? MPI_INT : MPI_FLOAT, doubles, 2, MPI_FLOAT, 0, world);
    if (is("coll-alltoallv")) {
        int counts[8], displs[8];
        for (int i = 0; i < 8; i++)
            counts[i] = 2, displs[i] = 2 * i;
        MPI_Alltoallv(ints, counts, displs, last ? MPI_INT : MPI_FLOAT, floats, counts, displs, MPI_FLOAT, world);
    }
    if (is("coll-allreduce"))
        MPI_Allreduce(ints, floats, 4, last ? MPI_INT : MPI_FLOAT, MPI_SUM, world);
    if (is("coll-call")) {
        if (last)
            MPI_Barrier(world);
        else
            MPI_Bcast(ints, 1, MPI_INT, 0, world);
    }
    if (is("coll-comm")) {
        MPI_Comm half;
        if (last)
            MPI_Barrier(world);
        else
            MPI_Comm_split(world, 0, 0, &half);
    }
    if (is("coll-root"))
        MPI_Bcast(ints, 1, MPI_INT, last ? 0 : 1, world);
    if (is("coll-overlap"))
        MPI_Allreduce(ints, ints + 2, 4, MPI_INT, MPI_SUM, world);
    if (is("coll-nonblocking")) {
        MPI_Request request;
        if (last)
            MPI_Allreduce(ints, floats, 1, MPI_INT, MPI_SUM, world);
        else
            MPI_Iallreduce(ints, floats, 1, MPI_INT, MPI_SUM, world, &request), MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
    if (is("coll-init") || is("coll-init-nonblocking")) {
        MPI_Request request;
        if (!last)
            MPI_Allreduce_init(ints, floats, 1, MPI_INT, MPI_SUM, world, MPI_INFO_NULL, &request), MPI_Start(&request);
        else if (is("coll-init"))
            MPI_Allreduce(ints, floats, 1, MPI_INT, MPI_SUM, world);
        else
            MPI_Iallreduce(ints, floats, 1, MPI_INT, MPI_SUM, world, &request), MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
    if (is("coll-init-again")) {
        MPI_Request request;
        MPI_Comm_set_errhandler(world, MPI_ERRORS_RETURN);
        if (last && !MPI_Allreduce_init(ints, ints + 2, 4, MPI_INT, MPI_SUM, world, MPI_INFO_NULL, &request))
            puts("buffers that overlap are accepted");
        MPI_Allreduce_init(ints, ints + 32, 4, MPI_INT, MPI_SUM, world, MPI_INFO_NULL, &request);
        MPI_Start(&request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        MPI_Request_free(&request);
    }
    if (is("coll-op"))
        MPI_Allreduce(ints, ints + 32, 4, MPI_INT, last ? MPI_MAX : MPI_SUM, world);
}

/* Files that are not opened, used or closed alike. */
static void use_files(void)
{
    MPI_Comm world = MPI_COMM_WORLD;
    MPI_File file;
    char name[400];
    const char *folder = getenv("TMPDIR");
    int last = rank == size - 1, amode = MPI_MODE_RDWR | MPI_MODE_CREATE;
    for (int other = 0; other < 2; other++) {
        snprintf(name, sizeof name, "%s/mistakes.%d", folder ? folder : "/tmp", other);
        if (rank == 0) {
            MPI_File_open(MPI_COMM_SELF, name, amode, MPI_INFO_NULL, &file);
            MPI_File_close(&file);
        }
    }
    MPI_Barrier(world);
    snprintf(name, sizeof name, "%s/mistakes.%d", folder ? folder : "/tmp", is("file-names") && last);
    MPI_File_open(world, name, amode, MPI_INFO_NULL, &file);
    MPI_File_set_errhandler(file, MPI_ERRORS_ARE_FATAL);
    MPI_Barrier(world);
    for (int other = 0; other < 2 && rank == 0; other++) {
        /* Those that are open stay until the job ends, however it does. */
        snprintf(name, sizeof name, "%s/mistakes.%d", folder ? folder : "/tmp", other);
        MPI_File_delete(name, MPI_INFO_NULL);
    }
    if (is("file-calls")) {
        if (last)
            MPI_File_write_all(file, ints, 1, MPI_INT, MPI_STATUS_IGNORE);
        else
            MPI_File_write_at_all(file, 0, ints, 1, MPI_INT, MPI_STATUS_IGNORE);
    }
    if (is("file-sync")) {
        if (last)
            MPI_File_sync(file);
        else
            MPI_File_set_size(file, 0);
    }
    if (!is("file-left"))
        MPI_File_close(&file);
}

static sem_t inside, done;

/* Lets the other thread call while this one is inside MPI. */
static void let_other_call(void *in, void *inout, int *len, MPI_Datatype *type)
{
    (void)in, (void)inout, (void)len, (void)type;
    sem_post(&inside);
    sem_wait(&done);
}

static void *call_in_thread(void *nothing)
{
    int flag;
    sem_wait(&inside);
    /* Any thread may ask that at any time. */
    MPI_Initialized(&flag);
    MPI_Query_thread(&flag);
    for (int i = 0; i < 3 && !is("threads-query"); i++)
        MPI_Comm_set_name(MPI_COMM_WORLD, "name");
    sem_post(&done);
    return nothing;
}

/* Rank 1 has another thread, which calls while the first is outside of MPI, or inside. */
static void call_in_threads(void)
{
    pthread_t thread;
    MPI_Op op;
    sem_init(&inside, 0, 0);
    sem_init(&done, 0, 0);
    if (rank != 1)
        return;
    pthread_create(&thread, NULL, call_in_thread, NULL);
    if (is("threads-single") || is("threads-funneled") || is("threads-turns")) {
        sem_post(&inside);
        pthread_join(thread, NULL);
        return;
    }
    MPI_Op_create(let_other_call, 1, &op);
    MPI_Reduce_local(ints, ints + 10, 1, MPI_INT, op);
    MPI_Op_free(&op);
    pthread_join(thread, NULL);
}

static int level(void)
{
    if (is("threads-serialized") || is("threads-turns") || is("threads-query"))
        return MPI_THREAD_SERIALIZED;
    if (is("threads-funneled") || is("threads-beside"))
        return MPI_THREAD_FUNNELED;
    return is("threads-multiple") ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE;
}

/* Rank 1 accesses the same bytes of rank 0 twice. Right where nothing else was asked for. */
static void access_twice(void)
{
    MPI_Win win;
    int *base, right = (rank + 1) % size;
    MPI_Win_allocate(64, sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &base, &win);
    MPI_Win_set_name(win, "ledger");
    MPI_Win_lock_all(0, win);
    MPI_Put(ints, 4, MPI_INT, right, 0, 4, MPI_INT, win);
    MPI_Put(ints, 2, MPI_INT, right, 4, 2, MPI_INT, win);
    MPI_Accumulate(ints, 2, MPI_INT, right, 6, 2, MPI_INT, MPI_SUM, win);
    MPI_Accumulate(ints, 1, MPI_INT, right, 7, 1, MPI_INT, MPI_SUM, win);
    if (is("rma-puts") && rank == 1)
        MPI_Put(ints, 2, MPI_INT, right, 3, 2, MPI_INT, win);
    if (is("rma-get") && rank == 1)
        MPI_Get(ints + 32, 1, MPI_INT, right, 5, 1, MPI_INT, win);
    if (is("rma-accumulate") && rank == 1)
        MPI_Accumulate(ints, 1, MPI_INT, right, 2, 1, MPI_INT, MPI_SUM, win);
    if (is("rma-local") && rank == 1) {
        MPI_Win_flush_local(right, win);
        MPI_Get(ints + 32, 1, MPI_INT, right, 7, 1, MPI_INT, win);
    }
    MPI_Win_flush(right, win);
    MPI_Get(ints + 32, 8, MPI_INT, right, 0, 8, MPI_INT, win);
    MPI_Win_unlock_all(win);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_lock(MPI_LOCK_SHARED, right, 0, win);
    MPI_Put(ints, 4, MPI_INT, right, 0, 4, MPI_INT, win);
    MPI_Win_unlock(right, win);
    MPI_Win_fence(0, win);
    MPI_Put(ints, 1, MPI_INT, right, 0, 1, MPI_INT, win);
    if (is("rma-fence") && rank == 1)
        MPI_Put(ints, 1, MPI_INT, right, 0, 1, MPI_INT, win);
    MPI_Win_fence(0, win);
    MPI_Win_free(&win);
}

/* Rank 1 uses the same bytes of its own memory in two operations that nothing orders. Right where nothing else was asked
 * for: what only reads may share, and so may what something has completed. */
static void share_buffer(void)
{
    MPI_Win win, other;
    MPI_Request request;
    MPI_Datatype even;
    MPI_Group world;
    int *base, *second, right = (rank + 1) % size;
    int *own = ints + 40;
    MPI_Win_allocate(256, sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &base, &win);
    MPI_Win_set_name(win, "ledger");
    MPI_Win_allocate(64, sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &second, &other);
    MPI_Type_vector(4, 1, 2, MPI_INT, &even);
    MPI_Type_commit(&even);
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    MPI_Win_lock_all(0, win);
    MPI_Win_lock_all(0, other);
    /* Readers, and neighbours. */
    MPI_Put(own, 4, MPI_INT, right, 0, 4, MPI_INT, win);
    MPI_Put(own, 4, MPI_INT, right, 4, 4, MPI_INT, win);
    MPI_Accumulate(own + 2, 2, MPI_INT, right, 8, 2, MPI_INT, MPI_SUM, win);
    MPI_Put(own, 4, MPI_INT, right, 0, 4, MPI_INT, other);
    MPI_Get(own + 4, 2, MPI_INT, right, 16, 2, MPI_INT, win);
    MPI_Get(own + 6, 2, MPI_INT, right, 16, 2, MPI_INT, win);
    MPI_Get(own + 8, 1, even, right, 16, 1, even, win);
    MPI_Get(own + 9, 1, even, right, 16, 1, even, win);
    if (is("own-gets") && rank == 1)
        MPI_Get(own + 7, 1, MPI_INT, right, 18, 1, MPI_INT, win);
    if (is("own-put-of-get") && rank == 1)
        MPI_Put(own + 5, 1, MPI_INT, right, 50, 1, MPI_INT, win);
    if (is("own-get-to-put") && rank == 1)
        MPI_Get(own + 3, 1, MPI_INT, right, 50, 1, MPI_INT, win);
    if (is("own-accumulate") && rank == 1)
        MPI_Accumulate(own + 4, 1, MPI_INT, right, 50, 1, MPI_INT, MPI_SUM, win);
    if (is("own-no-op") && rank == 1) {
        /* The operand is not looked at, but what was there is fetched. */
        MPI_Get_accumulate(own + 4, 1, MPI_INT, own + 30, 1, MPI_INT, right, 50, 1, MPI_INT, MPI_NO_OP, win);
        MPI_Fetch_and_op(own, own + 30, MPI_INT, right, 51, MPI_SUM, win);
    }
    if (is("own-swap") && rank == 1)
        MPI_Compare_and_swap(own + 1, own + 2, own + 2, MPI_INT, right, 50, win);
    if (is("own-windows") && rank == 1)
        MPI_Get(own + 6, 1, MPI_INT, right, 8, 1, MPI_INT, other);
    if (is("own-ranks") && rank == 1)
        MPI_Get(own + 6, 1, MPI_INT, rank, 30, 1, MPI_INT, win);
    if (is("own-rput") && rank == 1) {
        MPI_Rput(own + 6, 1, MPI_INT, right, 50, 1, MPI_INT, win, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
    for (int i = 1; is("own-loop") && rank == 1 && i < 4; i++)
        MPI_Get(own + 20, i, MPI_INT, right, 50, i, MPI_INT, win);
    if (is("own-type") && rank == 1)
        MPI_Put(own + 8, 1, even, right, 50, 1, even, win);
    if (is("own-elsewhere") && rank == 1) {
        /* A flush of another rank, or of another window, completes nothing here. */
        MPI_Win_flush(rank, win);
        MPI_Win_flush_all(other);
        MPI_Get(own + 7, 1, MPI_INT, right, 18, 1, MPI_INT, win);
    }
    /* Each way to complete. */
    MPI_Win_flush_local_all(other);
    MPI_Win_flush_local(right, win);
    MPI_Get(own, 1, MPI_INT, right, 40, 1, MPI_INT, win);
    MPI_Win_flush_local_all(win);
    MPI_Get(own, 1, MPI_INT, right, 40, 1, MPI_INT, win);
    MPI_Win_flush(right, win);
    MPI_Fetch_and_op(own + 1, own, MPI_INT, right, 41, MPI_SUM, win);
    MPI_Win_flush_all(win);
    MPI_Compare_and_swap(own + 1, own + 2, own, MPI_INT, right, 42, win);
    MPI_Win_unlock_all(win);
    MPI_Win_unlock_all(other);
    MPI_Win_lock(MPI_LOCK_SHARED, right, 0, win);
    MPI_Get(own, 1, MPI_INT, right, 40, 1, MPI_INT, win);
    MPI_Win_unlock(right, win);
    MPI_Win_lock(MPI_LOCK_SHARED, right, 0, win);
    for (int i = 0; i < 2; i++) {
        MPI_Rget(own, 1, MPI_INT, right, 40, 1, MPI_INT, win, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        MPI_Rput(own, 1, MPI_INT, right, 43 + i, 1, MPI_INT, win, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
    MPI_Win_unlock(right, win);
    MPI_Win_fence(MPI_MODE_NOPRECEDE, win);
    MPI_Get(own, 1, MPI_INT, right, 45, 1, MPI_INT, win);
    MPI_Win_fence(0, win);
    MPI_Put(own, 1, MPI_INT, right, 46, 1, MPI_INT, win);
    MPI_Win_fence(MPI_MODE_NOSUCCEED, win);
    for (int i = 0; i < 2; i++) {
        MPI_Win_post(world, 0, win);
        MPI_Win_start(world, 0, win);
        MPI_Get(own, 1, MPI_INT, right, 45, 1, MPI_INT, win);
        MPI_Win_complete(win);
        MPI_Win_wait(win);
    }
    MPI_Group_free(&world);
    MPI_Type_free(&even);
    MPI_Win_free(&other);
    MPI_Win_free(&win);
}

int main(int argc, char **argv)
{
    int provided;
    how = argc > 1 ? argv[1] : "";
    if (level() == MPI_THREAD_SINGLE)
        MPI_Init(&argc, &argv);
    else
        MPI_Init_thread(&argc, &argv, level(), &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (strncmp(how, "threads", 7) == 0)
        call_in_threads();
    if (is("types-struct"))
        exchange_other_structs();
    else if (strncmp(how, "types", 5) == 0)
        exchange_other_types();
    if (strncmp(how, "rma", 3) == 0 || is("none"))
        access_twice();
    if (strncmp(how, "own", 3) == 0 || is("none"))
        share_buffer();
    if (strncmp(how, "file", 4) == 0 || is("none"))
        use_files();
    leave();
    disagree();
    MPI_Finalize();
    return 0;
}
