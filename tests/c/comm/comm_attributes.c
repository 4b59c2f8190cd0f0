/* Attributes: copied by dup, deleted by free. Those of MPI_COMM_SELF are deleted in MPI_Finalize, last set first. */
#include "../comm_check.h"

static int copies, deletes, order[8], ended;

static int copy(MPI_Comm comm, int key, void *extra, void *in, void *out, int *flag)
{
    (void)comm, (void)key;
    copies++;
    CHECK(extra == &copies);
    *(void **)out = (char *)in + 1;
    *flag = 1;
    return MPI_SUCCESS;
}

static int delete(MPI_Comm comm, int key, void *value, void *extra)
{
    int own;
    CHECK(extra == &copies && key != MPI_KEYVAL_INVALID);
    CHECK(MPI_Comm_rank(comm, &own) == MPI_SUCCESS); /* the communicator is still valid */
    (void)value;
    deletes++;
    return MPI_SUCCESS;
}

static int note(MPI_Comm comm, int key, void *value, void *extra)
{
    int initialized, finalized;
    (void)key, (void)extra;
    MPI_Finalized(&finalized);
    MPI_Initialized(&initialized);
    if (comm != MPI_COMM_SELF || finalized || !initialized)
        ended = -100;
    order[ended++] = *(int *)value;
    return MPI_SUCCESS;
}

/* Frees its own key, as libraries do that attach their state to a communicator. */
static int delete_with_key(MPI_Comm comm, int key, void *value, void *extra)
{
    (void)comm, (void)value;
    ++*(int *)extra;
    return MPI_Comm_free_keyval(&key);
}

static void free_key_in_delete(void)
{
    static int calls;
    MPI_Comm dups[2];
    int key;
    MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, delete_with_key, &key, &calls);
    for (int i = 0; i < 2; i++) {
        MPI_Comm_dup(MPI_COMM_SELF, &dups[i]);
        MPI_Comm_set_attr(dups[i], key, &calls);
    }
    MPI_Comm_free(&dups[0]);
    MPI_Comm_free(&dups[1]);
    CHECK(calls == 2);
}

static int refuse(MPI_Comm comm, int key, void *value, void *extra)
{
    (void)comm, (void)key, (void)value, (void)extra;
    return MPI_ERR_INTERN;
}

int main(int argc, char **argv)
{
    static char base[4];
    static int numbers[3] = {1, 2, 3};
    int key, shared, flag, own, refusing;
    char *value;
    MPI_Comm dup;
    start(&argc, &argv);

    free_key_in_delete();
    MPI_Comm_create_keyval(copy, delete, &key, &copies);
    MPI_Comm_create_keyval(MPI_COMM_DUP_FN, MPI_COMM_NULL_DELETE_FN, &shared, NULL);
    MPI_Comm_get_attr(MPI_COMM_WORLD, key, &value, &flag);
    CHECK(!flag);
    MPI_Comm_set_attr(MPI_COMM_WORLD, key, base);
    MPI_Comm_set_attr(MPI_COMM_WORLD, shared, base + 2);
    MPI_Comm_dup(MPI_COMM_WORLD, &dup);
    MPI_Comm_get_attr(dup, key, &value, &flag);
    CHECK(flag && value == base + 1 && copies == 1);
    MPI_Comm_get_attr(dup, shared, &value, &flag);
    CHECK(flag && value == base + 2);
    MPI_Comm_free(&dup);
    CHECK(deletes == 1);
    MPI_Comm_set_attr(MPI_COMM_WORLD, key, base + 3);
    CHECK(deletes == 2); /* the old value was deleted */
    int saved = key;
    MPI_Comm_free_keyval(&key);
    CHECK(key == MPI_KEYVAL_INVALID);
    MPI_Comm_get_attr(MPI_COMM_WORLD, saved, &value, &flag);
    CHECK(flag && value == base + 3); /* a freed key is valid while an attribute uses it */
    MPI_Comm_delete_attr(MPI_COMM_WORLD, saved);
    CHECK(deletes == 3);

    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    CLASS(MPI_Comm_get_attr(MPI_COMM_WORLD, saved, &value, &flag), MPI_ERR_KEYVAL);
    CLASS(MPI_Comm_set_attr(MPI_COMM_WORLD, MPI_TAG_UB, base), MPI_ERR_KEYVAL);
    MPI_Comm_dup(MPI_COMM_WORLD, &dup);
    MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, refuse, &refusing, NULL);
    MPI_Comm_set_attr(dup, refusing, base);
    CLASS(MPI_Comm_delete_attr(dup, refusing), MPI_ERR_INTERN);
    MPI_Comm before = dup;
    CLASS(MPI_Comm_free(&dup), MPI_ERR_INTERN);
    CHECK(dup == before);

    /* The deprecated names. */
    MPI_Keyval_create(MPI_NULL_COPY_FN, MPI_NULL_DELETE_FN, &own, NULL);
    MPI_Attr_put(MPI_COMM_WORLD, own, base);
    MPI_Attr_get(MPI_COMM_WORLD, own, &value, &flag);
    CHECK(flag && value == base);
    MPI_Attr_delete(MPI_COMM_WORLD, own);
    MPI_Attr_get(MPI_COMM_WORLD, own, &value, &flag);
    CHECK(!flag);
    MPI_Keyval_free(&own);

    int *number;
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &number, &flag);
    CHECK(flag && *number == 2147483647);
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_UNIVERSE_SIZE, &number, &flag);
    CHECK(!flag || *number >= ranks);
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_APPNUM, &number, &flag);
    CHECK(!flag || *number == (are_apart() ? rank : 0));
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_LASTUSEDCODE, &number, &flag);
    CHECK(flag && *number == MPI_ERR_LASTCODE);
    int class;
    MPI_Add_error_class(&class);
    CHECK(class > MPI_ERR_LASTCODE && *number == class);

    for (int i = 0; i < 3; i++) {
        MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, note, &own, NULL);
        MPI_Comm_set_attr(MPI_COMM_SELF, own, &numbers[i]);
        MPI_Comm_free_keyval(&own);
    }
    int result = finish();
    if (ended != 3 || order[0] != 3 || order[1] != 2 || order[2] != 1) {
        fprintf(stderr, "finalisation deleted %d attributes: %d %d %d\n", ended, order[0], order[1], order[2]);
        result = 1;
    }
    return result;
}
