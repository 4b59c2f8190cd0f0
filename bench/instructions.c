/* instructions: how many instructions one MPI call takes, counted by callgrind.
 *
 *   mpiexec -n 1 instructions DIR : -n 1 valgrind --tool=callgrind --collect-atstart=no instructions DIR
 *
 * Rank 1 runs under valgrind and makes the calls; rank 0 answers. Collection is on inside the named call alone. The two
 * agree through a page of a file in DIR, not through MPI, so that nothing but the named call touches the library and
 * "message already there" is certain: rank 0's send has returned before rank 1 calls MPI_Recv. The same call
 * of a function that only returns is counted as `empty`; a call's own count is total - empty + 1 (that one `ret`).
 * Each case ends with a dump named after it; the script bench/instructions reads the dumps.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <mpi.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <valgrind/callgrind.h>

enum { CALLS = 1000, WARM = 200, TAG = 7, BYTES = 8 };

enum job { NOTHING, RECEIVE, SEND, STOP };

/* Shared by the two processes: rank 1 posts a job and its number, rank 0 answers with the number when it is done. */
struct board {
    _Atomic int asked, done;
    enum job job;
};

static struct board *board;
static char buffer[64], second[64];
static int peer;

static struct board *map_board(const char *dir) {
    char path[4096];
    snprintf(path, sizeof path, "%s/board", dir);
    int fd = open(path, O_RDWR | O_CREAT, 0600);
    if (fd < 0 || ftruncate(fd, 4096)) {
        perror(path);
        exit(2);
    }
    void *at = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    return at == MAP_FAILED ? NULL : at;
}

/* Asks rank 0 for `job` and, when `wait`, returns only after it is done. */
static void ask(enum job job, int wait) {
    while (board->done != board->asked) sched_yield();
    board->job = job;
    board->asked++;
    while (wait && board->done != board->asked) sched_yield();
}

static void serve(void) {
    for (int next = 1;; next++) {
        while (board->asked != next) sched_yield();
        if (board->job == RECEIVE) MPI_Recv(second, BYTES, MPI_BYTE, peer, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        if (board->job == SEND) MPI_Send(buffer, BYTES, MPI_BYTE, peer, TAG, MPI_COMM_WORLD);
        enum job job = board->job;
        board->done = next;
        if (job == STOP) return;
    }
}

__attribute__((noinline, noclone)) static int empty_call(const void *b, int n, MPI_Datatype t, int p, int tag, MPI_Comm c,
                                                         void *r) {
    (void)b, (void)n, (void)t, (void)p, (void)tag, (void)c, (void)r;
    return 0;
}

/* Kept in variables, so that the compiler cannot drop or clone the empty call. */
static int (*volatile empty)(const void *, int, MPI_Datatype, int, int, MPI_Comm, void *) = empty_call;

#define COUNTED(call) do { CALLGRIND_TOGGLE_COLLECT; call; CALLGRIND_TOGGLE_COLLECT; } while (0)

/* Makes the library take what has arrived into its queue of unexpected messages: looks for a tag that never comes. */
static void pull_arrivals(void) {
    int found;
    for (int i = 0; i < 3; i++) MPI_Iprobe(peer, TAG + 1, MPI_COMM_WORLD, &found, MPI_STATUS_IGNORE);
}

/* One call of case `which`, with all that has to happen before and after it outside the count. */
static void make_call(const char *which) {
    MPI_Request request;
    if (!strcmp(which, "empty")) {
        int (*call)(const void *, int, MPI_Datatype, int, int, MPI_Comm, void *) = empty;
        COUNTED(call(buffer, BYTES, MPI_BYTE, peer, TAG, MPI_COMM_WORLD, &request));
    } else if (!strcmp(which, "MPI_Send")) {
        COUNTED(MPI_Send(buffer, BYTES, MPI_BYTE, peer, TAG, MPI_COMM_WORLD));
        ask(RECEIVE, 1);
    } else if (!strcmp(which, "MPI_Recv")) {
        ask(SEND, 1);
        MPI_Status status;
        COUNTED(MPI_Recv(buffer, BYTES, MPI_BYTE, peer, TAG, MPI_COMM_WORLD, &status));
    } else if (!strcmp(which, "MPI_Isend")) {
        COUNTED(MPI_Isend(buffer, BYTES, MPI_BYTE, peer, TAG, MPI_COMM_WORLD, &request));
        ask(RECEIVE, 0);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    } else if (!strcmp(which, "MPI_Irecv")) {
        COUNTED(MPI_Irecv(buffer, BYTES, MPI_BYTE, peer, TAG, MPI_COMM_WORLD, &request));
        ask(SEND, 1);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    } else if (!strcmp(which, "MPI_Irecv_there")) {
        ask(SEND, 1);
        COUNTED(MPI_Irecv(buffer, BYTES, MPI_BYTE, peer, TAG, MPI_COMM_WORLD, &request));
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    } else if (!strcmp(which, "MPI_Recv_unexpected")) {
        ask(SEND, 1);
        pull_arrivals();
        MPI_Status status;
        COUNTED(MPI_Recv(buffer, BYTES, MPI_BYTE, peer, TAG, MPI_COMM_WORLD, &status));
    } else if (!strcmp(which, "MPI_Irecv_unexpected")) {
        ask(SEND, 1);
        pull_arrivals();
        COUNTED(MPI_Irecv(buffer, BYTES, MPI_BYTE, peer, TAG, MPI_COMM_WORLD, &request));
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    } else if (!strcmp(which, "MPI_Wait_isend")) {
        MPI_Isend(buffer, BYTES, MPI_BYTE, peer, TAG, MPI_COMM_WORLD, &request);
        ask(RECEIVE, 1);
        COUNTED(MPI_Wait(&request, MPI_STATUS_IGNORE));
    } else if (!strcmp(which, "MPI_Wait_irecv")) {
        MPI_Irecv(buffer, BYTES, MPI_BYTE, peer, TAG, MPI_COMM_WORLD, &request);
        ask(SEND, 1);
        COUNTED(MPI_Wait(&request, MPI_STATUS_IGNORE));
    }
}

static const char *const cases[] = {
    "empty",           "MPI_Send",            "MPI_Recv",             "MPI_Isend",      "MPI_Irecv",
    "MPI_Irecv_there", "MPI_Recv_unexpected", "MPI_Irecv_unexpected", "MPI_Wait_isend", "MPI_Wait_irecv",
};

int main(int argc, char **argv) {
    int rank, ranks;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (ranks != 2 || argc != 2 || !(board = map_board(argv[1]))) {
        fprintf(stderr, "instructions: needs two ranks and a directory\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    peer = 1 - rank;
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) {
        serve();
    } else {
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
            for (int n = 0; n < WARM; n++) make_call(cases[i]);
            CALLGRIND_ZERO_STATS;
            for (int n = 0; n < CALLS; n++) make_call(cases[i]);
            CALLGRIND_DUMP_STATS_AT(cases[i]);
        }
        ask(STOP, 1);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}
