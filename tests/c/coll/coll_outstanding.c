/* test: ranks=1,2,3,4,8 timeout=240
   Nonblocking and persistent collectives together with other calls: many outstanding at once, progress inside
   blocking calls and tests of other requests, blocking collectives between them, communicators freed meanwhile. */
#include "../coll_check.h"

enum { MANY = 1000 };

static void check_many(MPI_Comm comm)
{
    static MPI_Request requests[MANY];
    static int in[MANY], out[MANY];
    for (int i = 0; i < MANY; i++) {
        in[i] = me + i;
        switch (i % 3) {
        case 0:
            MPI_Iallreduce(&in[i], &out[i], 1, MPI_INT, MPI_SUM, comm, &requests[i]);
            break;
        case 1:
            out[i] = me == i % ranks ? i : -1;
            MPI_Ibcast(&out[i], 1, MPI_INT, i % ranks, comm, &requests[i]);
            break;
        default:
            MPI_Ibarrier(comm, &requests[i]);
        }
    }
    /* Odd ranks complete the calls from last to first. */
    for (int i = 0; i < MANY; i++)
        MPI_Wait(&requests[me % 2 ? MANY - 1 - i : i], MPI_STATUS_IGNORE);
    for (int i = 0; i < MANY; i++) {
        if (i % 3 == 0)
            CHECK(out[i] == ranks * (ranks - 1) / 2 + ranks * i);
        if (i % 3 == 1)
            CHECK(out[i] == i);
    }
}

/* A rank that waits for a message progresses its collectives: the message is sent after they complete. */
static void check_progress_elsewhere(void)
{
    for (int how = 0; how < 4; how++) {
        MPI_Request request, other;
        int one = 1, sum[3] = { 0 }, flag = 0, token = 5;
        MPI_Iallreduce(&one, &sum[0], 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &request);
        if (me == 0) {
            MPI_Wait(&request, MPI_STATUS_IGNORE);
            for (int r = 1; r < ranks; r++)
                MPI_Send(&token, 1, MPI_INT, r, how, MPI_COMM_WORLD);
            continue;
        }
        token = 0;
        switch (how) {
        case 0:
            MPI_Recv(&token, 1, MPI_INT, 0, how, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            break;
        case 1:
            MPI_Irecv(&token, 1, MPI_INT, MPI_ANY_SOURCE, how, MPI_COMM_WORLD, &other);
            while (!flag)
                MPI_Test(&other, &flag, MPI_STATUS_IGNORE);
            break;
        case 2:
            while (!flag)
                MPI_Iprobe(0, how, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
            MPI_Recv(&token, 1, MPI_INT, 0, how, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            break;
        default:
            MPI_Probe(MPI_ANY_SOURCE, how, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            MPI_Recv(&token, 1, MPI_INT, 0, how, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        }
        CHECK(token == 5);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        CHECK(sum[0] == ranks);
    }
}

/* Blocking calls while others are outstanding, on the same communicator and another one. */
static void check_among_blocking(MPI_Comm comm)
{
    long *in = malloc(40000 * sizeof *in), *out = malloc(40000 * sizeof *out);
    for (int i = 0; i < 40000; i++)
        in[i] = i + me;
    MPI_Request requests[3];
    int value = me == ranks - 1 ? 77 : 0, sum = 0;
    MPI_Iallreduce(in, out, 40000, MPI_LONG, MPI_SUM, comm, &requests[0]);
    MPI_Ibcast(&value, 1, MPI_INT, ranks - 1, comm, &requests[1]);
    MPI_Ibarrier(comm, &requests[2]);
    for (int i = 0; i < 10; i++) {
        MPI_Barrier(comm);
        MPI_Allreduce(&i, &sum, 1, MPI_INT, MPI_SUM, i % 2 ? comm : MPI_COMM_WORLD);
        CHECK(sum == i * ranks);
    }
    MPI_Waitall(3, requests, MPI_STATUSES_IGNORE);
    CHECK(value == 77);
    for (int i = 0; i < 40000; i++)
        if (out[i] != (long)i * ranks + ranks * (ranks - 1) / 2) {
            CHECK(!"sum of 40000");
            break;
        }
    free(in);
    free(out);
}

/* The communicator is freed, and its outstanding calls complete. */
static void check_freed_comm(void)
{
    MPI_Comm comm;
    MPI_Request requests[3];
    int one = me, sum = -1, all[64];
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Allreduce_init(&one, &sum, 1, MPI_INT, MPI_SUM, comm, MPI_INFO_NULL, &requests[0]);
    MPI_Iallgather(&one, 1, MPI_INT, all, 1, MPI_INT, comm, &requests[1]);
    MPI_Ibarrier(comm, &requests[2]);
    MPI_Start(&requests[0]);
    MPI_Comm_free(&comm);
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Barrier(comm);
    MPI_Waitall(3, requests, MPI_STATUSES_IGNORE);
    CHECK(sum == ranks * (ranks - 1) / 2);
    for (int r = 0; r < ranks; r++)
        CHECK(all[r] == r);
    MPI_Start(&requests[0]);
    MPI_Wait(&requests[0], MPI_STATUS_IGNORE);
    MPI_Request_free(&requests[0]);
    MPI_Comm_free(&comm);
}

/* A persistent call of a freed communicator, and one of a communicator created after it. The ranks start them in
 * different orders. */
static void check_two_communicators(void)
{
    MPI_Comm comm;
    MPI_Request requests[2];
    int one = me + 1, two = 10 * (me + 1), sums[2];
    MPI_Allreduce(&one, sums, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Allreduce_init(&one, &sums[0], 1, MPI_INT, MPI_SUM, comm, MPI_INFO_NULL, &requests[0]);
    MPI_Comm_free(&comm);
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Allreduce_init(&two, &sums[1], 1, MPI_INT, MPI_SUM, comm, MPI_INFO_NULL, &requests[1]);
    for (int i = 0; i < 100; i++) {
        sums[0] = sums[1] = -1;
        MPI_Start(&requests[(me + i) % 2]);
        MPI_Start(&requests[(me + i + 1) % 2]);
        MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
        CHECK(sums[0] == ranks * (ranks + 1) / 2 && sums[1] == 5 * ranks * (ranks + 1));
    }
    MPI_Request_free(&requests[0]);
    MPI_Request_free(&requests[1]);
    MPI_Comm_free(&comm);
}

/* The other ranks call only after rank 0 has returned from its call, which must not wait for them. */
static void check_late_peers(MPI_Comm comm)
{
    double mine = me + 0.5, sum = -1, place = me + 0.5;
    MPI_Request requests[4];
    MPI_Allreduce_init(&mine, &sum, 1, MPI_DOUBLE, MPI_SUM, comm, MPI_INFO_NULL, &requests[2]);
    MPI_Barrier_init(comm, MPI_INFO_NULL, &requests[3]);
    for (int how = 0; how < 4; how++) {
        int flag = 0, token = how;
        sum = -1;
        place = me + 0.5;
        if (me > 0)
            MPI_Recv(&token, 1, MPI_INT, 0, how, comm, MPI_STATUS_IGNORE);
        switch (how) {
        case 0:
            MPI_Iallreduce(MPI_IN_PLACE, &place, 1, MPI_DOUBLE, MPI_SUM, comm, &requests[0]);
            break;
        case 1:
            MPI_Ibarrier(comm, &requests[1]);
            break;
        default:
            MPI_Start(&requests[how]);
        }
        if (me == 0) {
            MPI_Test(&requests[how], &flag, MPI_STATUS_IGNORE);
            CHECK(flag == (ranks == 1));
        }
        for (int r = 1; me == 0 && r < ranks; r++)
            MPI_Send(&token, 1, MPI_INT, r, how, comm);
        MPI_Wait(&requests[how], MPI_STATUS_IGNORE);
        CHECK(how != 0 || place == ranks * ranks / 2.0);
        CHECK(how != 2 || sum == ranks * ranks / 2.0);
    }
    MPI_Request_free(&requests[2]);
    MPI_Request_free(&requests[3]);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &me);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    MPI_Comm comm;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    check_many(comm);
    check_progress_elsewhere();
    check_among_blocking(comm);
    check_freed_comm();
    check_two_communicators();
    check_late_peers(comm);
    MPI_Comm_free(&comm);
    return finish();
}
