/* Spawns this program: from MPI_COMM_WORLD with any root, from MPI_COMM_SELF on all ranks at once, and from spawned
 * processes. Covers messages, collectives, merging, and what a child sees of its parents.
 * test: ranks=1,2,3,4 timeout=120 */
#include "../check.h"

#define ROUNDS 3

static const char *program;

/* Every process of one side sends a message to every process of the other side. */
static void exchange(MPI_Comm inter, int is_child)
{
    int own, here, there, sum = 0;
    MPI_Comm_rank(inter, &own);
    MPI_Comm_size(inter, &here);
    MPI_Comm_remote_size(inter, &there);
    static char out[100000], in[100000];
    const int sizes[] = {4, 3000, 100000};
    for (int s = 0; s < 3; s++)
        for (int i = 0; i < here * there; i++) {
            int near = is_child ? i % here : i / there, far = is_child ? i / here : i % there;
            if (near != own)
                continue;
            unsigned mine = 1 + is_child * 1000 + near * 30 + far, theirs = 1 + !is_child * 1000 + far * 30 + near;
            MPI_Status status;
            fill(out, sizes[s], mine);
            OK(MPI_Sendrecv(out, sizes[s], MPI_BYTE, far, 7, in, sizes[s], MPI_BYTE, far, 7, inter, &status));
            STATUS(status, far, 7, sizes[s]);
            HOLDS(in, sizes[s], theirs);
        }
    int one = is_child ? 100 : 1;
    OK(MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, inter));
    SAME(sum, is_child ? there : 100 * there);
}

/* Merges both sides, with the parents first. */
static void merge(MPI_Comm inter, int is_child)
{
    MPI_Comm all = MPI_COMM_NULL, dup;
    int own, here, there, size, place, sum = 0;
    MPI_Comm_rank(inter, &own);
    MPI_Comm_size(inter, &here);
    MPI_Comm_remote_size(inter, &there);
    OK(MPI_Intercomm_merge(inter, is_child, &all));
    MPI_Comm_size(all, &size);
    MPI_Comm_rank(all, &place);
    SAME(size, here + there);
    SAME(place, is_child ? there + own : own);
    OK(MPI_Allreduce(&place, &sum, 1, MPI_INT, MPI_SUM, all));
    SAME(sum, size * (size - 1) / 2);
    OK(MPI_Comm_dup(all, &dup));
    int from = -1;
    OK(MPI_Sendrecv(&place, 1, MPI_INT, (place + 1) % size, 1, &from, 1, MPI_INT, MPI_ANY_SOURCE, 1, dup,
                    MPI_STATUS_IGNORE));
    SAME(from, (place + size - 1) % size);
    OK(MPI_Comm_free(&dup));
    OK(MPI_Comm_free(&all));
}

static MPI_Comm spawn(int count, int depth, int root, MPI_Comm comm, int parents)
{
    char deep[20], above[20], wanted[20];
    snprintf(deep, sizeof deep, "%d", depth);
    snprintf(above, sizeof above, "%d", parents);
    snprintf(wanted, sizeof wanted, "%d", count);
    char *argv[] = {"child", deep, above, wanted, "two words", "", NULL};
    int codes[8] = {-1, -1, -1, -1, -1, -1, -1, -1}, size = -1, own;
    MPI_Comm inter = MPI_COMM_NULL;
    MPI_Comm_rank(comm, &own);
    int is_root = own == root;
    OK(MPI_Comm_spawn(is_root ? program : NULL, is_root ? argv : NULL, is_root ? count : -9, MPI_INFO_NULL, root, comm,
                      &inter, codes));
    MPI_Comm_remote_size(inter, &size);
    SAME(size, count);
    for (int i = 0; i < 8; i++)
        SAME(codes[i], i < count ? MPI_SUCCESS : -1);
    return inter;
}

static void be_parent(void)
{
    for (int round = 0; round < ROUNDS; round++) {
        int root = round == 1 ? ranks - 1 : 0;
        MPI_Comm inter = spawn(round + 1, round == 0, root, MPI_COMM_WORLD, ranks);
        exchange(inter, 0);
        merge(inter, 0);
        OK(MPI_Comm_disconnect(&inter));
        SAME(inter, MPI_COMM_NULL);
    }
    MPI_Comm inter = spawn(1, 0, 0, MPI_COMM_SELF, 1);
    exchange(inter, 0);
    merge(inter, 0);
    OK(MPI_Comm_disconnect(&inter));
}

static void be_child(MPI_Comm parent, int argc, char **argv)
{
    char name[MPI_MAX_OBJECT_NAME];
    int length, parents = -1, flag = 0, *value = NULL, is_inter = 0;
    SAME(argc, 7);
    CHECK(strcmp(argv[1], "child") == 0 && strcmp(argv[5], "two words") == 0 && argv[6][0] == 0);
    int depth = atoi(argv[2]);
    MPI_Comm_get_name(parent, name, &length);
    CHECK(strcmp(name, "MPI_COMM_PARENT") == 0);
    OK(MPI_Comm_test_inter(parent, &is_inter));
    CHECK(is_inter);
    MPI_Comm_remote_size(parent, &parents);
    SAME(parents, atoi(argv[3]));
    SAME(ranks, atoi(argv[4]));
    OK(MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_APPNUM, &value, &flag));
    CHECK(flag && *value == 0);
    OK(MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_UNIVERSE_SIZE, &value, &flag));
    CHECK(flag && *value >= 1);
    exchange(parent, 1);
    merge(parent, 1);
    if (depth > 0) {
        MPI_Comm inter = spawn(1, depth - 1, 0, MPI_COMM_WORLD, ranks);
        exchange(inter, 0);
        merge(inter, 0);
        OK(MPI_Comm_disconnect(&inter));
    }
    OK(MPI_Comm_disconnect(&parent));
    MPI_Comm_get_parent(&parent);
    SAME(parent, MPI_COMM_NULL);
}

int main(int argc, char **argv)
{
    MPI_Comm parent;
    program = argv[0];
    start(&argc, &argv);
    MPI_Comm_get_parent(&parent);
    if (parent == MPI_COMM_NULL)
        be_parent();
    else
        be_child(parent, argc, argv);
    return finish();
}
