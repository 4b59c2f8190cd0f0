/* A stencil that outlives its ranks: heat in a ring, with checkpoints in the memory of the neighbours.
 *
 * Each rank owns a part of the ring. After every PERIOD steps it stores its part, and a copy at the next rank, its buddy.
 * If ranks die, the survivors shrink the communicator, spawn as many new ranks, give them the places of the dead, and go
 * on from the last checkpoint: a new rank gets its part from the buddy. If a buddy has died too, all start again.
 *
 * A round is a restoration or PERIOD steps, then the copy for the buddy, then an agreement. So all survivors know which
 * checkpoint is complete, and all repair or none does. Revocation does not interrupt an agreement. Therefore no rank
 * starts one that others may not start: a new rank ends, as if it had died, if an operation fails before the first
 * restoration shows that all survivors have accepted it. At the end each rank computes the whole ring alone: both must
 * agree in every bit.
 *
 * usage: mpiexec --with-ft ulfm -n 4 buddy_stencil [STEPS [POINTS]]
 */
#include <mpi-ext.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PERIOD = 50, NEVER = -1 };

typedef struct {
    MPI_Comm comm;
    int place, ranks;      /* rank and size; the place is NEVER before a new rank joins */
    int points;            /* of each rank */
    long step, checkpoint; /* steps done; those at the last complete checkpoint, NEVER in a new rank */
    double *now, *next;    /* own points, with a border of one point at each end */
    double *own, *guest;   /* checkpoint: own points and those of the rank before */
    double *incoming;      /* next checkpoint of the rank before */
} Ring;

static void revoke(MPI_Comm comm)
{
    if (comm != MPI_COMM_NULL)
        MPIX_Comm_revoke(comm);
}

static void free_comm(MPI_Comm *comm)
{
    if (*comm != MPI_COMM_NULL && *comm != MPI_COMM_WORLD)
        MPI_Comm_free(comm);
}

static void set_comm(Ring *r, MPI_Comm comm)
{
    r->comm = comm;
    MPI_Comm_rank(comm, &r->place);
    MPI_Comm_size(comm, &r->ranks);
}

static void start(double *now, long first, int points)
{
    for (int i = 0; i < points; i++)
        now[i + 1] = (double)((first + i) * 7919 % 1000);
}

static void compute_step(Ring *r)
{
    for (int i = 1; i <= r->points; i++)
        r->next[i] = 0.5 * r->now[i] + 0.25 * (r->now[i - 1] + r->now[i + 1]);
    double *swap = r->now;
    r->now = r->next;
    r->next = swap;
    r->step++;
}

/* Advances to the next checkpoint. Returns whether all messages have succeeded. */
static int advance(Ring *r, long steps)
{
    int n = r->points, before = (r->place + r->ranks - 1) % r->ranks, after = (r->place + 1) % r->ranks;
    do {
        double *now = r->now;
        if (MPI_Sendrecv(&now[1], 1, MPI_DOUBLE, before, 1, &now[n + 1], 1, MPI_DOUBLE, after, 1, r->comm,
                         MPI_STATUS_IGNORE) != MPI_SUCCESS ||
            MPI_Sendrecv(&now[n], 1, MPI_DOUBLE, after, 2, &now[0], 1, MPI_DOUBLE, before, 2, r->comm,
                         MPI_STATUS_IGNORE) != MPI_SUCCESS)
            return 0;
        compute_step(r);
    } while (r->step % PERIOD != 0 && r->step < steps);
    return 1;
}

/* Returns to the last checkpoint that all survivors have. */
static int restore(Ring *r)
{
    long *checkpoints = malloc(r->ranks * sizeof *checkpoints), newest = 0;
    int ok = MPI_Allgather(&r->checkpoint, 1, MPI_LONG, checkpoints, 1, MPI_LONG, r->comm) == MPI_SUCCESS;
    for (int i = 0; ok && i < r->ranks; i++)
        newest = checkpoints[i] > newest ? checkpoints[i] : newest;
    for (int i = 0; ok && i < r->ranks; i++)
        if (checkpoints[i] == NEVER && checkpoints[(i + 1) % r->ranks] == NEVER)
            newest = 0; /* the part is lost */
    r->step = newest;
    if (newest == 0)
        start(r->now, (long)r->place * r->points, r->points);
    else if (r->checkpoint != NEVER)
        memcpy(r->now + 1, r->own, r->points * sizeof(double));
    for (int i = 0; ok && newest > 0 && i < r->ranks; i++) {
        int buddy = (i + 1) % r->ranks;
        if (checkpoints[i] == NEVER && r->place == buddy)
            ok = MPI_Send(r->guest, r->points, MPI_DOUBLE, i, 3, r->comm) == MPI_SUCCESS;
        if (checkpoints[i] == NEVER && r->place == i)
            ok = MPI_Recv(r->now + 1, r->points, MPI_DOUBLE, buddy, 3, r->comm, MPI_STATUS_IGNORE) == MPI_SUCCESS;
    }
    free(checkpoints);
    return ok;
}

/* Ends a round that has succeeded here if `ok`. Returns whether it has everywhere; then the checkpoint is complete. */
static int end_round(Ring *r, int ok)
{
    int before = (r->place + r->ranks - 1) % r->ranks, after = (r->place + 1) % r->ranks;
    ok = ok && MPI_Sendrecv(r->now + 1, r->points, MPI_DOUBLE, after, 4, r->incoming, r->points, MPI_DOUBLE, before, 4,
                            r->comm, MPI_STATUS_IGNORE) == MPI_SUCCESS;
    if (!ok)
        revoke(r->comm); /* others may wait for this rank, not for a dead one */
    if (MPIX_Comm_agree(r->comm, &ok) != MPI_SUCCESS || !ok)
        return 0;
    double *swap = r->guest;
    r->guest = r->incoming;
    r->incoming = swap;
    memcpy(r->own, r->now + 1, r->points * sizeof(double));
    r->checkpoint = r->step;
    return 1;
}

/* Makes the communicator of survivors and new ranks, in which a new rank has the place of a dead one. Returns whether
 * this rank has it; if not, the other ranks get errors too. */
static int join(const Ring *r, MPI_Comm inter, MPI_Comm *joined)
{
    MPI_Comm all = MPI_COMM_NULL;
    int size = 0, me = 0, ok;
    *joined = MPI_COMM_NULL;
    MPI_Comm_set_errhandler(inter, MPI_ERRORS_RETURN);
    ok = MPI_Intercomm_merge(inter, r->place == NEVER, &all) == MPI_SUCCESS;
    if (ok) {
        MPI_Comm_set_errhandler(all, MPI_ERRORS_RETURN);
        MPI_Comm_size(all, &size);
        MPI_Comm_rank(all, &me);
    }
    int *places = calloc(size + 1, sizeof *places), free_place = 0;
    ok = ok && MPI_Allgather(&r->place, 1, MPI_INT, places, 1, MPI_INT, all) == MPI_SUCCESS;
    for (int i = 0; ok && i < size; i++)
        if (places[i] == NEVER) {
            for (int j = 0; j < size; j++)
                if (places[j] == free_place)
                    free_place++, j = -1;
            places[i] = free_place;
        }
    ok = ok && MPI_Comm_split(all, 0, places[me], joined) == MPI_SUCCESS;
    if (ok)
        MPI_Comm_set_errhandler(*joined, MPI_ERRORS_RETURN);
    else
        revoke(inter), revoke(all);
    free(places);
    free_comm(&all);
    return ok;
}

/* Replaces the dead ranks, also if further ranks die meanwhile. */
static void repair(Ring *r, char **argv)
{
    int ok = 0;
    MPI_Comm joined = MPI_COMM_NULL;
    while (!ok) {
        MPI_Comm living, inter = MPI_COMM_NULL;
        int size;
        MPIX_Comm_shrink(r->comm, &living);
        MPI_Comm_set_errhandler(living, MPI_ERRORS_RETURN);
        MPI_Comm_size(living, &size);
        ok = MPI_Comm_spawn(argv[0], argv + 1, r->ranks - size, MPI_INFO_NULL, 0, living, &inter,
                            MPI_ERRCODES_IGNORE) == MPI_SUCCESS;
        ok = MPIX_Comm_agree(living, &ok) == MPI_SUCCESS && ok;
        if (ok) {
            ok = join(r, inter, &joined);
            ok = MPIX_Comm_agree(living, &ok) == MPI_SUCCESS && ok;
        }
        if (!ok) { /* the new ranks get errors, and end */
            revoke(inter), revoke(joined);
            free_comm(&joined);
        }
        free_comm(&inter);
        free_comm(&living);
    }
    free_comm(&r->comm);
    set_comm(r, joined);
}

/* Compares the own part with the result of one rank that computes the whole ring. */
static int is_right(const Ring *r, long steps)
{
    Ring whole = {.points = r->points * r->ranks};
    whole.now = calloc(whole.points + 2, sizeof(double));
    whole.next = calloc(whole.points + 2, sizeof(double));
    start(whole.now, 0, whole.points);
    while (whole.step < steps) {
        whole.now[0] = whole.now[whole.points];
        whole.now[whole.points + 1] = whole.now[1];
        compute_step(&whole);
    }
    int is_same = !memcmp(r->now + 1, whole.now + 1 + (size_t)r->place * r->points, r->points * sizeof(double));
    free(whole.now);
    free(whole.next);
    return is_same;
}

int main(int argc, char **argv)
{
    MPI_Comm parent, joined = MPI_COMM_WORLD;
    MPI_Init(&argc, &argv);
    long steps = argc > 1 ? atol(argv[1]) : 5000;
    int points = argc > 2 ? atoi(argv[2]) : 1000, is_restoring, repairs = 0, wrong;
    size_t bytes = (points + 2) * sizeof(double);
    Ring r = {.points = points, .now = malloc(bytes), .next = malloc(bytes),
              .own = malloc(bytes), .guest = malloc(bytes), .incoming = malloc(bytes)};
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_get_parent(&parent);
    is_restoring = parent != MPI_COMM_NULL;
    if (is_restoring) {
        r.place = r.checkpoint = NEVER;
        if (!join(&r, parent, &joined))
            exit(EXIT_FAILURE);
        MPI_Comm_free(&parent);
    }
    set_comm(&r, joined);
    start(r.now, (long)r.place * points, points);
    while (r.step < steps || is_restoring) {
        int ok = is_restoring ? restore(&r) : advance(&r, steps);
        if (!ok && r.checkpoint == NEVER)
            exit(EXIT_FAILURE);
        is_restoring = !end_round(&r, ok);
        if (is_restoring) {
            repair(&r, argv);
            repairs++;
        }
    }
    wrong = !is_right(&r, steps);
    printf("%s: place %d of %d after %d repairs\n", wrong ? "WRONG" : "checked", r.place, r.ranks, repairs);
    free_comm(&r.comm);
    MPI_Finalize();
    return wrong;
}
