/* Communicators created from communicators: members, their order, and that messages never cross communicators.
 * test: ranks=1,2,3,4,8 */
#include "../comm_check.h"

static void test_dup(void)
{
    MPI_Comm a, b, c;
    int result;
    MPI_Comm_dup(MPI_COMM_WORLD, &a);
    MPI_Comm_dup(a, &b);
    MPI_Comm_compare(a, MPI_COMM_WORLD, &result);
    CHECK(result == MPI_CONGRUENT);
    MPI_Comm_compare(a, a, &result);
    CHECK(result == MPI_IDENT);

    /* The receives use the communicators in the opposite order of the sends: each must get the message of its
     * communicator. */
    MPI_Comm comms[] = {MPI_COMM_WORLD, a, b};
    MPI_Request requests[3];
    int out[3], in[3], right = (rank + 1) % ranks, left = (rank + ranks - 1) % ranks;
    for (int i = 0; i < 3; i++) {
        out[i] = 100 * i + rank;
        MPI_Isend(&out[i], 1, MPI_INT, right, 1, comms[i], &requests[i]);
    }
    for (int i = 2; i >= 0; i--) {
        MPI_Recv(&in[i], 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, comms[i], MPI_STATUS_IGNORE);
        CHECK(in[i] == 100 * i + left);
    }
    MPI_Waitall(3, requests, MPI_STATUSES_IGNORE);

    /* A message in flight on a freed communicator still arrives. */
    int late = -1;
    MPI_Request pending[2];
    MPI_Comm_dup(b, &c);
    MPI_Irecv(&late, 1, MPI_INT, left, 9, c, &pending[0]);
    MPI_Isend(&rank, 1, MPI_INT, right, 9, c, &pending[1]);
    MPI_Comm_free(&c);
    CHECK(c == MPI_COMM_NULL);
    MPI_Waitall(2, pending, MPI_STATUSES_IGNORE);
    CHECK(late == left);
    MPI_Comm_free(&a);
    RING(b, 7);
    MPI_Comm_disconnect(&b);
    CHECK(b == MPI_COMM_NULL);
}

static void test_idup(void)
{
    /* MPI_Comm_idup is local: rank 0 calls it before it sends, the other ranks after they have received. */
    MPI_Comm base, dup;
    MPI_Request request;
    int token = 3;
    MPI_Comm_dup(MPI_COMM_WORLD, &base);
    if (rank > 0)
        MPI_Recv(&token, 1, MPI_INT, 0, 0, base, MPI_STATUS_IGNORE);
    MPI_Comm_idup(base, &dup, &request);
    if (rank == 0)
        for (int peer = 1; peer < ranks; peer++)
            MPI_Send(&token, 1, MPI_INT, peer, 0, base);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    CHECK(request == MPI_REQUEST_NULL);
    RING(dup, 2);
    MPI_Comm_free(&dup);
    MPI_Comm_idup_with_info(base, MPI_INFO_NULL, &dup, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    RING(dup, 3);
    MPI_Comm_free(&dup);
    MPI_Comm_free(&base);
}

static void test_split(void)
{
    MPI_Comm part;
    int part_rank, part_size;
    MPI_Comm_split(MPI_COMM_WORLD, rank % 2, -rank, &part);
    MPI_Comm_rank(part, &part_rank);
    MPI_Comm_size(part, &part_size);
    CHECK(part_size == (ranks + 1 - rank % 2) / 2);
    CHECK(part_rank == part_size - 1 - rank / 2);
    RING(part, 10 + rank % 2);
    MPI_Comm_free(&part);

    MPI_Comm_split(MPI_COMM_WORLD, rank == 0 ? MPI_UNDEFINED : 5, 0, &part);
    CHECK((part == MPI_COMM_NULL) == (rank == 0));
    if (part != MPI_COMM_NULL) {
        MPI_Comm_rank(part, &part_rank);
        CHECK(part_rank == rank - 1);
        RING(part, 20);
        MPI_Comm_free(&part);
    }
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, -rank, MPI_INFO_NULL, &part);
    MPI_Comm_rank(part, &part_rank);
    CHECK(part_rank == (are_apart() ? 0 : ranks - 1 - rank));
    RING(part, 21);
    MPI_Comm_free(&part);
    CLASS(MPI_Comm_split(MPI_COMM_SELF, -5, 0, &part), MPI_ERR_ARG);
}

static void test_create(void)
{
    MPI_Group world, reversed, odd;
    MPI_Comm made;
    int ranges[1][3] = {{ranks - 1, 0, -1}}, odds[1][3] = {{1, ranks - 1, 2}}, got;
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    MPI_Group_range_incl(world, 1, ranges, &reversed);
    MPI_Comm_create(MPI_COMM_WORLD, reversed, &made);
    MPI_Comm_rank(made, &got);
    CHECK(got == ranks - 1 - rank);
    MPI_Comm_compare(made, MPI_COMM_WORLD, &got);
    CHECK(got == (ranks > 1 ? MPI_SIMILAR : MPI_CONGRUENT));
    RING(made, 30);
    MPI_Comm_free(&made);

    if (ranks > 1) {
        MPI_Group_range_incl(world, 1, odds, &odd);
        MPI_Comm_create(MPI_COMM_WORLD, odd, &made);
        CHECK((made == MPI_COMM_NULL) == (rank % 2 == 0));
        if (made != MPI_COMM_NULL) {
            RING(made, 31);
            MPI_Comm_free(&made);
        }
        /* Only members call MPI_Comm_create_group. */
        if (rank % 2 == 1) {
            MPI_Comm_create_group(MPI_COMM_WORLD, odd, 77, &made);
            RING(made, 32);
            MPI_Comm_free(&made);
        }
        MPI_Group_free(&odd);
    }
    CLASS(MPI_Comm_create_group(MPI_COMM_SELF, world, 0, &made), ranks > 1 ? MPI_ERR_GROUP : MPI_SUCCESS);
    MPI_Group_free(&reversed);
    MPI_Group_free(&world);
}

static void test_many(void)
{
    /* Contexts stay distinct through many generations, also beyond the spare contexts of a communicator. */
    MPI_Comm chain = MPI_COMM_WORLD, kept[64];
    for (int i = 0; i < 64; i++) {
        MPI_Comm_dup(i % 3 == 0 ? MPI_COMM_WORLD : chain, &kept[i]);
        chain = kept[i];
    }
    MPI_Request requests[128];
    int in[64], out[64], right = (rank + 1) % ranks, left = (rank + ranks - 1) % ranks;
    for (int i = 0; i < 64; i++)
        MPI_Irecv(&in[i], 1, MPI_INT, left, 0, kept[63 - i], &requests[i]);
    for (int i = 0; i < 64; i++) {
        out[i] = i;
        MPI_Isend(&out[i], 1, MPI_INT, right, 0, kept[i], &requests[64 + i]);
    }
    MPI_Waitall(128, requests, MPI_STATUSES_IGNORE);
    for (int i = 0; i < 64; i++) {
        CHECK(in[i] == 63 - i);
        MPI_Comm_free(&kept[i]);
    }
    for (int i = 0; i < 500; i++) {
        MPI_Comm dup, part;
        MPI_Comm_dup(MPI_COMM_WORLD, &dup);
        MPI_Comm_split(dup, (rank + i) % 2, rank, &part);
        RING(part, i);
        MPI_Comm_free(&dup);
        MPI_Comm_free(&part);
    }
}

static void test_names(void)
{
    char name[MPI_MAX_OBJECT_NAME], longer[MPI_MAX_OBJECT_NAME + 10];
    int length;
    MPI_Comm dup;
    MPI_Comm_get_name(MPI_COMM_WORLD, name, &length);
    CHECK(strcmp(name, "MPI_COMM_WORLD") == 0 && length == 14);
    MPI_Comm_get_name(MPI_COMM_NULL, name, &length);
    CHECK(strcmp(name, "MPI_COMM_NULL") == 0);
    MPI_Comm_dup(MPI_COMM_WORLD, &dup);
    MPI_Comm_get_name(dup, name, &length);
    CHECK(length == 0 && name[0] == 0);
    memset(longer, 'x', sizeof longer);
    longer[sizeof longer - 1] = 0;
    MPI_Comm_set_name(dup, longer);
    MPI_Comm_get_name(dup, name, &length);
    CHECK(length == MPI_MAX_OBJECT_NAME - 1 && strlen(name) == (size_t)length);
    MPI_Comm_free(&dup);
}

static void test_hints(void)
{
    MPI_Info info, used;
    MPI_Comm dup, again, plain;
    char value[16];
    int flag, length = sizeof value;
    MPI_Info_create(&info);
    MPI_Info_set(info, "mpi_assert_no_any_tag", "true");
    MPI_Info_set(info, "unknown_to_all", "1");
    MPI_Comm_dup_with_info(MPI_COMM_WORLD, info, &dup);
    MPI_Comm_dup(dup, &again);
    MPI_Comm_dup_with_info(dup, MPI_INFO_NULL, &plain);
    MPI_Comm comms[] = {dup, again, plain};
    for (int i = 0; i < 3; i++) {
        MPI_Comm_get_info(comms[i], &used);
        length = sizeof value;
        MPI_Info_get_string(used, "mpi_assert_no_any_tag", &length, value, &flag);
        CHECK(flag && strcmp(value, i < 2 ? "true" : "false") == 0);
        length = sizeof value;
        MPI_Info_get_string(used, "unknown_to_all", &length, value, &flag);
        CHECK(!flag);
        MPI_Info_free(&used);
        MPI_Comm_free(&comms[i]);
    }
    MPI_Info_free(&info);
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    test_dup();
    test_idup();
    test_split();
    test_create();
    test_many();
    test_names();
    test_hints();
    MPI_Comm parent = MPI_COMM_WORLD, null = MPI_COMM_NULL, world = MPI_COMM_WORLD;
    MPI_Comm_get_parent(&parent);
    CHECK(parent == MPI_COMM_NULL);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    CLASS(MPI_Comm_free(&null), MPI_ERR_COMM);
    CLASS(MPI_Comm_free(&world), MPI_ERR_COMM);
    CLASS(MPI_Comm_remote_size(MPI_COMM_WORLD, &rank), MPI_ERR_COMM);
    return finish();
}
