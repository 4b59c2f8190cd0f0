/* Intercommunicators: members of both sides, messages between the sides, duplicates, splits, merges, and rejected
 * arguments.
 * test: ranks=1,2,3,4,8 */
#include "../comm_check.h"

static int near_first, near_size, far_first, far_size; /* world ranks of the two sides, which are contiguous */

/* The first `split` ranks form one side, the others the other side. */
static MPI_Comm make(int split, int tag)
{
    MPI_Comm local, inter;
    int low = rank < split;
    near_first = low ? 0 : split;
    near_size = low ? split : ranks - split;
    far_first = low ? split : 0;
    far_size = low ? ranks - split : split;
    MPI_Comm_split(MPI_COMM_WORLD, low, 0, &local);
    /* The last rank of each side is its leader. */
    OK(MPI_Intercomm_create(local, near_size - 1, MPI_COMM_WORLD, far_first + far_size - 1, tag, &inter));
    MPI_Comm_free(&local);
    return inter;
}

static void check_sides(MPI_Comm inter)
{
    int is_inter = 0, size = -1, own = -1, result;
    MPI_Group near, far, world;
    OK(MPI_Comm_test_inter(inter, &is_inter));
    CHECK(is_inter);
    OK(MPI_Comm_size(inter, &size));
    SAME(size, near_size);
    OK(MPI_Comm_rank(inter, &own));
    SAME(own, rank - near_first);
    OK(MPI_Comm_remote_size(inter, &size));
    SAME(size, far_size);
    OK(MPI_Comm_group(inter, &near));
    OK(MPI_Comm_remote_group(inter, &far));
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    for (int i = 0; i < far_size; i++) {
        int there = -1;
        MPI_Group_translate_ranks(far, 1, &i, world, &there);
        SAME(there, far_first + i);
    }
    MPI_Group_compare(near, far, &result);
    SAME(result, MPI_UNEQUAL);
    MPI_Group_free(&near);
    MPI_Group_free(&far);
    MPI_Group_free(&world);
}

/* Each rank sends to each rank of the other side, which receives by every kind of receive. */
static void check_messages(MPI_Comm inter, int near, int far)
{
    int own;
    MPI_Status status;
    MPI_Request requests[64];
    int out[64];
    MPI_Comm_rank(inter, &own);
    for (int i = 0; i < far; i++) {
        out[i] = 1000 * own + i;
        MPI_Isend(&out[i], 1, MPI_INT, i, 3, inter, &requests[i]);
    }
    for (int i = 0; i < far; i++) {
        int got = -1;
        if (i % 2)
            MPI_Recv(&got, 1, MPI_INT, i, 3, inter, &status);
        else {
            MPI_Probe(i, MPI_ANY_TAG, inter, &status);
            MPI_Recv(&got, 1, MPI_INT, status.MPI_SOURCE, status.MPI_TAG, inter, &status);
        }
        SAME(got, 1000 * i + own);
        STATUS(status, i, 3, sizeof(int));
    }
    MPI_Waitall(far, requests, MPI_STATUSES_IGNORE);
    /* Receives from any source: each rank of the other side is received once. */
    int seen = 0;
    for (int i = 0; i < far; i++)
        MPI_Isend(&own, 1, MPI_INT, i, 4, inter, &requests[i]);
    for (int i = 0; i < far; i++) {
        int got = -1;
        MPI_Recv(&got, 1, MPI_INT, MPI_ANY_SOURCE, 4, inter, &status);
        SAME(got, status.MPI_SOURCE);
        seen |= 1 << got;
    }
    SAME(seen, (1 << far) - 1);
    MPI_Waitall(far, requests, MPI_STATUSES_IGNORE);
    /* Long messages in pairs, in both directions at once. */
    if (own < far && own < near) {
        const size_t bytes = 300000;
        unsigned char *to = allocate(bytes), *from = allocate(bytes);
        fill(to, bytes, (unsigned)rank);
        MPI_Sendrecv(to, (int)bytes, MPI_BYTE, own, 5, from, (int)bytes, MPI_BYTE, own, 5, inter, &status);
        STATUS(status, own, 5, bytes);
        HOLDS(from, bytes, (unsigned)(far_first + own));
        free(to);
        free(from);
    }
    int none = 7;
    MPI_Sendrecv(&none, 1, MPI_INT, MPI_PROC_NULL, 0, &none, 1, MPI_INT, MPI_PROC_NULL, 0, inter, &status);
    STATUS(status, MPI_PROC_NULL, MPI_ANY_TAG, 0);
}

static void check_dups(MPI_Comm inter)
{
    MPI_Comm dups[12];
    MPI_Request request;
    int result;
    MPI_Comm_set_name(inter, "both sides");
    for (int i = 0; i < 12; i++) {
        /* The duplicates need more contexts than were allocated with the first communicator. */
        if (i % 3)
            OK(MPI_Comm_dup(inter, &dups[i]));
        else {
            OK(MPI_Comm_idup(inter, &dups[i], &request));
            MPI_Wait(&request, MPI_STATUS_IGNORE);
        }
    }
    MPI_Comm_compare(inter, dups[0], &result);
    SAME(result, MPI_CONGRUENT);
    MPI_Comm_compare(inter, inter, &result);
    SAME(result, MPI_IDENT);
    MPI_Comm_compare(inter, MPI_COMM_WORLD, &result);
    SAME(result, MPI_UNEQUAL);
    for (int i = 11; i >= 0; i--) {
        check_messages(dups[i], near_size, far_size);
        OK(i % 2 ? MPI_Comm_free(&dups[i]) : MPI_Comm_disconnect(&dups[i]));
        CHECK(dups[i] == MPI_COMM_NULL);
    }
}

static void check_merges(MPI_Comm inter, int low)
{
    MPI_Comm merged;
    int own, size, is_inter = 1;
    for (int swap = 0; swap < 2; swap++) {
        OK(MPI_Intercomm_merge(inter, swap == low, &merged));
        MPI_Comm_test_inter(merged, &is_inter);
        CHECK(!is_inter);
        MPI_Comm_rank(merged, &own);
        MPI_Comm_size(merged, &size);
        SAME(size, ranks);
        SAME(own, swap == low ? rank - near_first + far_size : rank - near_first);
        RING(merged, swap);
        int sum = 0;
        MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, merged);
        SAME(sum, ranks * (ranks - 1) / 2);
        MPI_Comm again;
        MPI_Comm_dup(merged, &again);
        RING(again, 2);
        MPI_Comm_free(&again);
        MPI_Comm_free(&merged);
    }
    OK(MPI_Intercomm_merge(inter, 1, &merged));
    RING(merged, 3);
    MPI_Comm_free(&merged);
}

static void check_parts(MPI_Comm inter)
{
    MPI_Comm part;
    int own, size, far;
    MPI_Comm_rank(inter, &own);
    /* Even and odd ranks of both sides. A color that only one side has gives MPI_COMM_NULL. */
    OK(MPI_Comm_split(inter, own % 2, -own, &part));
    int here = (near_size + 1 - own % 2) / 2, there = (far_size + 1 - own % 2) / 2;
    if (there == 0)
        CHECK(part == MPI_COMM_NULL);
    else {
        MPI_Comm_size(part, &size);
        MPI_Comm_remote_size(part, &far);
        SAME(size, here);
        SAME(far, there);
        MPI_Comm_rank(part, &size);
        SAME(size, here - 1 - own / 2);
        /* The reversed order holds on the other side too: rank 0 there is its last rank. */
        int got = -1, mine = rank;
        MPI_Request request;
        if (size == 0)
            MPI_Isend(&mine, 1, MPI_INT, 0, 1, part, &request);
        if (size == 0) {
            MPI_Recv(&got, 1, MPI_INT, 0, 1, part, MPI_STATUS_IGNORE);
            SAME(got, far_first + 2 * (there - 1) + own % 2);
            MPI_Wait(&request, MPI_STATUS_IGNORE);
        }
        MPI_Comm_free(&part);
    }
    OK(MPI_Comm_split(inter, own == 0 ? 5 : MPI_UNDEFINED, 0, &part));
    CHECK((part != MPI_COMM_NULL) == (own == 0));
    if (part != MPI_COMM_NULL)
        MPI_Comm_free(&part);
    /* The last rank of each side. */
    MPI_Group near, last;
    int position = near_size - 1;
    MPI_Comm_group(inter, &near);
    MPI_Group_incl(near, 1, &position, &last);
    OK(MPI_Comm_create(inter, last, &part));
    CHECK((part != MPI_COMM_NULL) == (own == position));
    if (part != MPI_COMM_NULL) {
        MPI_Comm_remote_size(part, &far);
        SAME(far, 1);
        MPI_Comm_free(&part);
    }
    MPI_Group_free(&near);
    MPI_Group_free(&last);
}

static int copies, deletes;
static int copy(MPI_Comm comm, int keyval, void *extra, void *value, void *out, int *flag)
{
    (void)comm, (void)keyval, (void)extra;
    *(void **)out = value;
    *flag = 1;
    copies++;
    return MPI_SUCCESS;
}
static int drop(MPI_Comm comm, int keyval, void *value, void *extra)
{
    (void)comm, (void)keyval, (void)value, (void)extra;
    deletes++;
    return MPI_SUCCESS;
}

static void check_attributes(MPI_Comm inter)
{
    int keyval, flag = 0;
    copies = deletes = 0;
    void *value;
    MPI_Comm dup;
    MPI_Comm_create_keyval(copy, drop, &keyval, NULL);
    MPI_Comm_set_attr(inter, keyval, &copies);
    MPI_Comm_dup(inter, &dup);
    MPI_Comm_get_attr(dup, keyval, &value, &flag);
    CHECK(flag && value == &copies);
    MPI_Comm_free(&dup);
    MPI_Comm_delete_attr(inter, keyval);
    MPI_Comm_free_keyval(&keyval);
    SAME(copies, 1);
    SAME(deletes, 2);
}

static int raised;
static void handle(MPI_Comm *comm, int *code, ...)
{
    (void)comm;
    raised = class_of(*code);
}

static void check_errors(MPI_Comm inter)
{
    MPI_Errhandler handler;
    MPI_Comm other = MPI_COMM_WORLD;
    int value = 0;
    MPI_Comm_create_errhandler(handle, &handler);
    MPI_Comm_set_errhandler(inter, handler);
    MPI_Send(&value, 1, MPI_INT, far_size, 0, inter);
    SAME(raised, MPI_ERR_RANK);
    raised = 0;
    MPI_Comm dup;
    MPI_Comm_dup(inter, &dup);
    MPI_Recv(&value, 1, MPI_INT, -7, 0, dup, MPI_STATUS_IGNORE);
    SAME(raised, MPI_ERR_RANK);
    MPI_Comm_free(&dup);
    MPI_Errhandler_free(&handler);
    MPI_Comm_set_errhandler(inter, MPI_ERRORS_RETURN);
    CLASS(MPI_Cart_create(inter, 1, (int[]){1}, (int[]){0}, 0, &other), MPI_ERR_COMM);
    CHECK(other == MPI_COMM_NULL);
    CLASS(MPI_Intercomm_create(inter, 0, MPI_COMM_WORLD, 0, 1, &other), MPI_ERR_COMM);
}

/* The sides overlap, or a leader is invalid: every member gets the error. */
static void check_refusals(void)
{
    MPI_Comm comm, inter = MPI_COMM_WORLD;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    CLASS(MPI_Intercomm_create(comm, 0, MPI_COMM_WORLD, 0, 9, &inter), MPI_ERR_COMM);
    CHECK(inter == MPI_COMM_NULL);
    CLASS(MPI_Intercomm_create(comm, ranks, MPI_COMM_WORLD, 0, 9, &inter), MPI_ERR_RANK);
    CLASS(MPI_Intercomm_create(comm, 0, MPI_COMM_WORLD, ranks, 9, &inter), MPI_ERR_RANK);
    CLASS(MPI_Intercomm_create(comm, 0, MPI_COMM_WORLD, 0, -9, &inter), MPI_ERR_TAG);
    CLASS(MPI_Intercomm_merge(comm, 0, &inter), MPI_ERR_COMM);
    int size;
    CLASS(MPI_Comm_remote_size(comm, &size), MPI_ERR_COMM);
    RING(comm, 1);
    MPI_Comm_free(&comm);
}

/* An existing intercommunicator connects the two sides. */
static void check_bridge(MPI_Comm inter, int split)
{
    MPI_Comm local, second;
    MPI_Comm_split(MPI_COMM_WORLD, rank < split, 0, &local);
    OK(MPI_Intercomm_create(local, 0, inter, 0, 2, &second));
    check_sides(second);
    check_messages(second, near_size, far_size);
    MPI_Comm_free(&second);
    MPI_Comm_free(&local);
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    for (int split = 1; split < ranks; split += split < 3 ? 1 : 3) {
        MPI_Comm inter = make(split, split);
        check_sides(inter);
        check_messages(inter, near_size, far_size);
        check_dups(inter);
        check_merges(inter, rank < split);
        check_parts(inter);
        check_attributes(inter);
        check_bridge(inter, split);
        check_errors(inter);
        OK(MPI_Comm_disconnect(&inter));
    }
    check_refusals();
    return finish();
}
