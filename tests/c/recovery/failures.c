/* Calls after the death of a rank, in a job that tolerates failures (ULFM): which calls fail with which class, and which
 * go on. The first argument names the case. The last rank dies. tests/jobs/failures.py runs the cases.
 * test: only=build */
#include "../check.h"
#include <mpi-ext.h>
#include <signal.h>
#include <unistd.h>

enum { LONG = 1 << 20 };

static int last;      /* the rank that dies */
static MPI_Comm comm; /* of all ranks, with errors that return */

#define FAILS(call, expected)                                                                     \
    do {                                                                                          \
        int class_ = class_of(call);                                                              \
        if (class_ != (expected))                                                                 \
            fail(__LINE__, "%s: class %d instead of %d", #call, class_, expected);                \
    } while (0)

/* The last rank dies, once all ranks are here. */
static void lose_last(void)
{
    MPI_Barrier(comm);
    if (rank == last)
        raise(SIGKILL);
}

/* Waits until this rank knows of `count` failures. */
static void await_failures(MPI_Comm on, int count)
{
    for (int known = 0; known < count;) {
        MPI_Group group;
        CHECK(MPIX_Comm_get_failed(on, &group) == MPI_SUCCESS);
        MPI_Group_size(group, &known);
        MPI_Group_free(&group);
        if (known < count)
            usleep(1000);
    }
}

/* Messages to and from the dead fail, also those that began before. Messages between the living go on. */
static void messages(void)
{
    static char out[LONG], in[LONG];
    MPI_Request requests[4];
    int sizes[] = {0, 8, 4000, LONG};
    if (rank != last)
        for (int i = 0; i < 4; i++)
            MPI_Irecv(in, sizes[i], MPI_CHAR, last, i, comm, &requests[i]);
    lose_last();
    for (int i = 0; i < 4; i++)
        FAILS(MPI_Wait(&requests[i], MPI_STATUS_IGNORE), MPIX_ERR_PROC_FAILED);
    for (int i = 0; i < 4; i++) {
        FAILS(MPI_Recv(in, sizes[i], MPI_CHAR, last, 9, comm, MPI_STATUS_IGNORE), MPIX_ERR_PROC_FAILED);
        FAILS(MPI_Ssend(out, sizes[i], MPI_CHAR, last, 9, comm), MPIX_ERR_PROC_FAILED);
        FAILS(MPI_Sendrecv(out, sizes[i], MPI_CHAR, last, 9, in, sizes[i], MPI_CHAR, last, 9, comm,
                           MPI_STATUS_IGNORE), MPIX_ERR_PROC_FAILED);
        CHECK(MPI_Irecv(in, sizes[i], MPI_CHAR, last, 9, comm, &requests[0]) == MPI_SUCCESS);
        int done = 0, rc = MPI_SUCCESS;
        while (!done && rc == MPI_SUCCESS)
            rc = MPI_Test(&requests[0], &done, MPI_STATUS_IGNORE);
        FAILS(rc, MPIX_ERR_PROC_FAILED);
        CHECK(requests[0] == MPI_REQUEST_NULL);
        int next = (rank + 1) % last, before = (rank + last - 1) % last;
        memset(out, rank + 1, sizes[i]);
        CHECK(MPI_Sendrecv(out, sizes[i], MPI_CHAR, next, i, in, sizes[i], MPI_CHAR, before, i, comm,
                           MPI_STATUS_IGNORE) == MPI_SUCCESS);
        CHECK(sizes[i] == 0 || (in[0] == before + 1 && in[sizes[i] - 1] == before + 1));
    }
    MPI_Status status;
    FAILS(MPI_Probe(last, 3, comm, &status), MPIX_ERR_PROC_FAILED);
    int found = 0;
    FAILS(MPI_Iprobe(last, 3, comm, &found, &status), MPIX_ERR_PROC_FAILED);
    MPI_Request persistent[2];
    CHECK(MPI_Recv_init(in, 8, MPI_CHAR, last, 1, comm, &persistent[0]) == MPI_SUCCESS);
    CHECK(MPI_Ssend_init(out, LONG, MPI_CHAR, last, 1, comm, &persistent[1]) == MPI_SUCCESS);
    for (int round = 0; round < 2; round++)
        for (int i = 0; i < 2; i++) {
            int rc = MPI_Start(&persistent[i]);
            FAILS(rc == MPI_SUCCESS ? MPI_Wait(&persistent[i], MPI_STATUS_IGNORE) : rc, MPIX_ERR_PROC_FAILED);
        }
    MPI_Request_free(&persistent[0]);
    MPI_Request_free(&persistent[1]);
}

/* A receive from any source is pending until the failure is acknowledged; then it waits for the living. */
static void any_source(void)
{
    int in = 0, out = rank, done, acked;
    MPI_Request request;
    MPI_Status status;
    lose_last();
    await_failures(comm, 1);
    if (rank == 0) {
        FAILS(MPI_Recv(&in, 1, MPI_INT, MPI_ANY_SOURCE, 1, comm, &status), MPIX_ERR_PROC_FAILED);
        FAILS(MPI_Probe(MPI_ANY_SOURCE, 1, comm, &status), MPIX_ERR_PROC_FAILED);
        CHECK(MPI_Irecv(&in, 1, MPI_INT, MPI_ANY_SOURCE, 1, comm, &request) == MPI_SUCCESS);
        FAILS(MPI_Wait(&request, &status), MPIX_ERR_PROC_FAILED_PENDING);
        CHECK(request != MPI_REQUEST_NULL);
        FAILS(MPI_Test(&request, &done, &status), MPIX_ERR_PROC_FAILED_PENDING);
        FAILS(MPI_Waitall(1, &request, &status), MPI_ERR_IN_STATUS);
        CHECK(class_of(status.MPI_ERROR) == MPIX_ERR_PROC_FAILED_PENDING && request != MPI_REQUEST_NULL);
        CHECK(MPIX_Comm_ack_failed(comm, 0, &acked) == MPI_SUCCESS && acked == 0);
        FAILS(MPI_Wait(&request, &status), MPIX_ERR_PROC_FAILED_PENDING);
        CHECK(MPIX_Comm_ack_failed(comm, 1, &acked) == MPI_SUCCESS && acked == 1);
        if (last == 1) {
            MPI_Cancel(&request);
            MPI_Wait(&request, &status);
            return;
        }
        for (int i = 1; i < last; i++)
            MPI_Send(&i, 1, MPI_INT, i, 0, comm);
        CHECK(MPI_Wait(&request, &status) == MPI_SUCCESS && in == status.MPI_SOURCE);
        for (int i = 2; i < last; i++) {
            CHECK(MPI_Recv(&in, 1, MPI_INT, MPI_ANY_SOURCE, 1, comm, &status) == MPI_SUCCESS);
            CHECK(in == status.MPI_SOURCE);
        }
    } else {
        MPI_Recv(&in, 1, MPI_INT, 0, 0, comm, &status);
        CHECK(MPI_Send(&out, 1, MPI_INT, 0, 1, comm) == MPI_SUCCESS);
    }
}

/* Every collective call on a communicator with a dead rank fails; one of the living alone succeeds. */
static void collectives(void)
{
    enum { N = 1000 };
    int *out = calloc(ranks * N, sizeof *out), *in = calloc(ranks * N, sizeof *in);
    MPI_Comm living, made;
    MPI_Comm_split(comm, rank == last, rank, &living);
    MPI_Comm_set_errhandler(living, MPI_ERRORS_RETURN);
    MPI_Request request, persistent;
    MPI_Barrier_init(comm, MPI_INFO_NULL, &persistent);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == last) {
        usleep(20000);
        raise(SIGKILL);
    }
    /* The call itself fails if the death is known before it. */
    int rc = MPI_Iallreduce(out, in, N, MPI_INT, MPI_SUM, comm, &request);
    FAILS(rc == MPI_SUCCESS ? MPI_Wait(&request, MPI_STATUS_IGNORE) : rc, MPIX_ERR_PROC_FAILED);
    for (int n = 1; n <= N; n *= N) {
        FAILS(MPI_Barrier(comm), MPIX_ERR_PROC_FAILED);
        FAILS(MPI_Bcast(out, n, MPI_INT, 0, comm), MPIX_ERR_PROC_FAILED);
        FAILS(MPI_Bcast(out, n, MPI_INT, last, comm), MPIX_ERR_PROC_FAILED);
        FAILS(MPI_Reduce(out, in, n, MPI_INT, MPI_SUM, 0, comm), MPIX_ERR_PROC_FAILED);
        FAILS(MPI_Allreduce(out, in, n, MPI_INT, MPI_SUM, comm), MPIX_ERR_PROC_FAILED);
        FAILS(MPI_Gather(out, n, MPI_INT, in, n, MPI_INT, 0, comm), MPIX_ERR_PROC_FAILED);
        FAILS(MPI_Scatter(out, n, MPI_INT, in, n, MPI_INT, 0, comm), MPIX_ERR_PROC_FAILED);
        FAILS(MPI_Allgather(out, n, MPI_INT, in, n, MPI_INT, comm), MPIX_ERR_PROC_FAILED);
        FAILS(MPI_Alltoall(out, n, MPI_INT, in, n, MPI_INT, comm), MPIX_ERR_PROC_FAILED);
        FAILS(MPI_Scan(out, in, n, MPI_INT, MPI_SUM, comm), MPIX_ERR_PROC_FAILED);
        FAILS(MPI_Reduce_scatter_block(out, in, n, MPI_INT, MPI_SUM, comm), MPIX_ERR_PROC_FAILED);
        rc = MPI_Ibcast(out, n, MPI_INT, 0, comm, &request);
        FAILS(rc == MPI_SUCCESS ? MPI_Wait(&request, MPI_STATUS_IGNORE) : rc, MPIX_ERR_PROC_FAILED);
    }
    rc = MPI_Start(&persistent);
    FAILS(rc == MPI_SUCCESS ? MPI_Wait(&persistent, MPI_STATUS_IGNORE) : rc, MPIX_ERR_PROC_FAILED);
    MPI_Request_free(&persistent);
    FAILS(MPI_Comm_dup(comm, &made), MPIX_ERR_PROC_FAILED);
    FAILS(MPI_Comm_split(comm, 0, 0, &made), MPIX_ERR_PROC_FAILED);
    int sum = 0, own = rank + 1;
    CHECK(MPI_Allreduce(&own, &sum, 1, MPI_INT, MPI_SUM, living) == MPI_SUCCESS);
    CHECK(sum == last * (last + 1) / 2);
    CHECK(MPI_Comm_free(&living) == MPI_SUCCESS);
    free(out);
    free(in);
}

/* A rank dies while the others are in collective calls of many sizes: each returns success or the failure, and no data
 * of a call that succeeds is wrong. */
static void amid_collectives(void)
{
    int *data = malloc(LONG);
    for (int round = 0;; round++) {
        int n = round % 3 == 0 ? 1 : round % 3 == 1 ? 3000 : LONG / 4, rc;
        for (int i = 0; i < n; i += n / 8 + 1)
            data[i] = rank == 0 ? round : -1;
        if (rank == last && round == 40)
            raise(SIGKILL);
        rc = MPI_Bcast(data, n, MPI_INT, 0, comm);
        for (int i = 0; rc == MPI_SUCCESS && i < n; i += n / 8 + 1)
            CHECK(data[i] == round);
        int own = 1, sum = 0;
        if (rc == MPI_SUCCESS)
            rc = MPI_Allreduce(&own, &sum, 1, MPI_INT, MPI_SUM, comm);
        if (rc == MPI_SUCCESS)
            CHECK(sum == ranks);
        else {
            char text[MPI_MAX_ERROR_STRING];
            int length;
            MPI_Error_string(rc, text, &length);
            if (class_of(rc) != MPIX_ERR_PROC_FAILED)
                fail(__LINE__, "%s", text);
            CHECK(round >= 39);
            break;
        }
    }
    free(data);
}

/* Revocation interrupts every operation at every living rank, and is the only way out for some of them. */
static void revoked(void)
{
    static char out[LONG], in[LONG];
    MPI_Comm half, inter;
    MPI_Comm_split(comm, rank % 2, rank, &half);
    MPI_Intercomm_create(half, 0, comm, 1 - rank % 2, 0, &inter);
    MPI_Comm on[] = {comm, inter};
    for (int i = 1; i >= 0; i--) {
        int flag = -1, peers;
        MPI_Comm_set_errhandler(on[i], MPI_ERRORS_RETURN);
        MPI_Request requests[2];
        i ? MPI_Comm_remote_size(on[i], &peers) : MPI_Comm_size(on[i], &peers);
        CHECK(MPIX_Comm_is_revoked(on[i], &flag) == MPI_SUCCESS && flag == 0);
        MPI_Barrier(MPI_COMM_WORLD);
        if (rank == 1) {
            usleep(10000);
            CHECK(MPIX_Comm_revoke(on[i]) == MPI_SUCCESS);
        } else {
            MPI_Irecv(in, LONG, MPI_CHAR, 0, 7, on[i], &requests[0]);
            MPI_Issend(out, LONG, MPI_CHAR, peers - 1, 8, on[i], &requests[1]);
            FAILS(MPI_Recv(in, 1, MPI_CHAR, MPI_ANY_SOURCE, 9, on[i], MPI_STATUS_IGNORE), MPIX_ERR_REVOKED);
            for (int r = 0; r < 2; r++)
                FAILS(MPI_Wait(&requests[r], MPI_STATUS_IGNORE), MPIX_ERR_REVOKED);
        }
        CHECK(MPIX_Comm_is_revoked(on[i], &flag) == MPI_SUCCESS && flag == 1);
        FAILS(MPI_Send(out, 1, MPI_CHAR, 0, 1, on[i]), MPIX_ERR_REVOKED);
        FAILS(MPI_Send(out, 1, MPI_CHAR, MPI_PROC_NULL, 1, on[i]), MPIX_ERR_REVOKED);
        FAILS(MPI_Barrier(on[i]), MPIX_ERR_REVOKED);
        FAILS(MPI_Iprobe(MPI_ANY_SOURCE, 1, on[i], &flag, MPI_STATUS_IGNORE), MPIX_ERR_REVOKED);
        CHECK(MPIX_Comm_revoke(on[i]) == MPI_SUCCESS);
        int me, size;
        CHECK(MPI_Comm_rank(on[i], &me) == MPI_SUCCESS && MPI_Comm_size(on[i], &size) == MPI_SUCCESS);
        /* Agreement works on a revoked communicator, and shrinking keeps all living ranks. */
        int value = 0x70 | 1 << rank % 2;
        CHECK(MPIX_Comm_agree(on[i], &value) == MPI_SUCCESS);
        CHECK(value == (i ? 0x70 | 1 << (1 - rank % 2) : ranks == 1 ? 0x71 : 0x70));
        MPI_Comm whole;
        CHECK(MPIX_Comm_shrink(on[i], &whole) == MPI_SUCCESS);
        int same;
        MPI_Comm_compare(on[i], whole, &same);
        CHECK(same == MPI_CONGRUENT && MPI_Barrier(whole) == MPI_SUCCESS);
        MPI_Comm_free(&whole);
    }
    MPI_Comm_free(&inter);
    MPI_Comm_free(&half);
}

/* Agreement, its error and acknowledgement, blocking and nonblocking; shrinking while further ranks die. */
static void agreed(void)
{
    int flag = ~(1 << rank), acked;
    CHECK(MPIX_Comm_agree(comm, &flag) == MPI_SUCCESS && flag == ~((1 << ranks) - 1));
    lose_last();
    flag = ~(1 << rank);
    FAILS(MPIX_Comm_agree(comm, &flag), MPIX_ERR_PROC_FAILED);
    CHECK((flag | 1 << last) == (~((1 << last) - 1) | 1 << last));
    MPI_Group group;
    int size = 0;
    MPIX_Comm_get_failed(comm, &group);
    MPI_Group_size(group, &size);
    CHECK(size == 1);
    MPI_Group_free(&group);
    MPIX_Comm_ack_failed(comm, ranks, &acked);
    CHECK(acked == 1);
    for (int round = 0; round < 100; round++) {
        flag = round | 1 << 20;
        MPI_Request request;
        CHECK(MPIX_Comm_iagree(comm, &flag, &request) == MPI_SUCCESS);
        CHECK(MPI_Wait(&request, MPI_STATUS_IGNORE) == MPI_SUCCESS && flag == (round | 1 << 20));
    }
    MPI_Comm now = comm, next;
    for (int left = last; left > 1; left--) {
        int me;
        MPI_Comm_rank(now, &me);
        if (me == left - 1 && left < last)
            raise(SIGKILL); /* while the others shrink */
        MPI_Request request = MPI_REQUEST_NULL;
        int rc = left % 2 ? MPIX_Comm_shrink(now, &next) : MPIX_Comm_ishrink(now, &next, &request);
        CHECK(rc == MPI_SUCCESS && MPI_Wait(&request, MPI_STATUS_IGNORE) == MPI_SUCCESS);
        now = next;
        MPI_Comm_set_errhandler(now, MPI_ERRORS_RETURN);
    }
    MPI_Barrier(now);
}

/* A window and a file fail with a defined error, and can be freed. */
static void windows_files(const char *path)
{
    int *memory, value = 7;
    MPI_Win win;
    MPI_File file;
    MPI_Win_allocate(64 * sizeof(int), sizeof(int), MPI_INFO_NULL, comm, &memory, &win);
    MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN);
    MPI_File_open(comm, path, MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &file);
    MPI_Win_fence(0, win);
    if (rank == last) {
        MPI_Win_fence(0, win);
        MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, win);
        MPI_Win_flush(0, win);
    } else
        MPI_Win_fence(MPI_MODE_NOSUCCEED, win);
    lose_last();
    await_failures(comm, 1);
    for (int target = last; target >= 0; target -= last) { /* the dead rank may hold the lock of rank 0 */
        int rc = MPI_Win_lock(MPI_LOCK_EXCLUSIVE, target, 0, win);
        if (rc == MPI_SUCCESS)
            rc = MPI_Put(&value, 1, MPI_INT, target, 0, 1, MPI_INT, win);
        if (rc == MPI_SUCCESS)
            rc = MPI_Win_unlock(target, win);
        CHECK(class_of(rc) == MPIX_ERR_PROC_FAILED || (target == 0 && rc == MPI_SUCCESS));
    }
    FAILS(MPI_Win_fence(0, win), MPIX_ERR_PROC_FAILED);
    CHECK(MPI_Win_free(&win) == MPI_SUCCESS);
    CHECK(MPI_File_write_at(file, 4 * rank, &value, 1, MPI_INT, MPI_STATUS_IGNORE) == MPI_SUCCESS);
    FAILS(MPI_File_write_at_all(file, 4 * rank, &value, 1, MPI_INT, MPI_STATUS_IGNORE), MPIX_ERR_PROC_FAILED);
    FAILS(MPI_File_close(&file), MPIX_ERR_PROC_FAILED);
    CHECK(file == MPI_FILE_NULL);
}

/* The dead are replaced by spawned ranks, several times. */
static void respawned(const char *program)
{
    MPI_Comm parent, whole, small, inter;
    MPI_Comm_get_parent(&parent);
    int round = 0;
    if (parent != MPI_COMM_NULL) {
        MPI_Intercomm_merge(parent, 1, &whole);
        MPI_Comm_free(&parent);
        MPI_Bcast(&round, 1, MPI_INT, 0, whole);
    } else
        MPI_Comm_dup(comm, &whole);
    for (;; round++) {
        int size, me;
        MPI_Comm_set_errhandler(whole, MPI_ERRORS_RETURN);
        MPI_Comm_size(whole, &size);
        MPI_Comm_rank(whole, &me);
        if (round == 6)
            break;
        if (me == size - 1) { /* once the others have left the broadcast below */
            for (int i = 0; i < me; i++)
                MPI_Recv(NULL, 0, MPI_INT, i, 1, whole, MPI_STATUS_IGNORE);
            raise(SIGKILL);
        }
        MPI_Send(NULL, 0, MPI_INT, size - 1, 1, whole);
        int class = class_of(MPI_Barrier(whole));
        CHECK(class == MPIX_ERR_PROC_FAILED || class == MPIX_ERR_REVOKED);
        MPIX_Comm_revoke(whole);
        CHECK(MPIX_Comm_shrink(whole, &small) == MPI_SUCCESS);
        char *words[] = {"respawned", NULL};
        CHECK(MPI_Comm_spawn(program, words, 1, MPI_INFO_NULL, 0, small, &inter, MPI_ERRCODES_IGNORE) == MPI_SUCCESS);
        MPI_Comm_free(&whole);
        MPI_Comm_free(&small);
        MPI_Intercomm_merge(inter, 0, &whole);
        MPI_Comm_free(&inter);
        int next = round + 1, now;
        CHECK(MPI_Bcast(&next, 1, MPI_INT, 0, whole) == MPI_SUCCESS);
        MPI_Comm_size(whole, &now);
        SAME(now, size);
    }
    CHECK(MPI_Barrier(whole) == MPI_SUCCESS);
    MPI_Comm_free(&whole);
}

/* With the default handler a failure ends the job. */
static void fatal(void)
{
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_ARE_FATAL);
    lose_last();
    MPI_Barrier(comm);
    for (;;)
        usleep(1000);
}

/* One rank never agrees, so the others wait for ever on a communicator that is revoked. */
static void stuck(void)
{
    int flag = 1;
    lose_last();
    if (rank == 0)
        for (;;)
            sleep(1);
    await_failures(comm, 1);
    MPIX_Comm_revoke(comm);
    MPIX_Comm_agree(comm, &flag);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    last = ranks - 1;
    CHECK(MPIX_Query_cuda_support() == 0);
    int *is_on, found;
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPIX_FT, &is_on, &found);
    CHECK(found && *is_on == 1);
    char value[8] = "";
    int room = sizeof value;
    MPI_Info_get_string(MPI_INFO_ENV, "mpix_ft", &room, value, &found);
    CHECK(found && !strcmp(value, "1"));
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    const char *which = argc > 1 ? argv[1] : "";
    if (!strcmp(which, "messages"))
        messages();
    else if (!strcmp(which, "any_source"))
        any_source();
    else if (!strcmp(which, "collectives"))
        collectives();
    else if (!strcmp(which, "amid_collectives"))
        amid_collectives();
    else if (!strcmp(which, "revoked"))
        revoked();
    else if (!strcmp(which, "agreed"))
        agreed();
    else if (!strcmp(which, "windows_files"))
        windows_files(argv[2]);
    else if (!strcmp(which, "respawned"))
        respawned(argv[0]);
    else if (!strcmp(which, "stuck"))
        stuck();
    else if (!strcmp(which, "fatal"))
        fatal();
    else if (!strcmp(which, "abort"))
        rank == last ? MPI_Abort(MPI_COMM_WORLD, 4) : usleep(60000000);
    else
        CHECK(!"a known case");
    MPI_Comm_free(&comm);
    if (failures == 0)
        printf("rank %d ok\n", rank);
    MPI_Finalize();
    return failures != 0;
}
