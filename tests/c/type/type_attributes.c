/* Attributes of datatypes: copied by MPI_Type_dup, deleted by MPI_Type_free. Any number of ranks. */
#include "../check.h"

static int copied, deleted;

static int copy(MPI_Datatype type, int key, void *state, void *in, void *out, int *flag)
{
    (void)type, (void)key;
    CHECK(state == &copied);
    copied++;
    *(void **)out = (char *)in + 1;
    *flag = 1;
    return MPI_SUCCESS;
}

static int forget(MPI_Datatype type, int key, void *value, void *state)
{
    (void)type, (void)key, (void)state;
    deleted++;
    return value == (void *)13 ? MPI_ERR_OTHER : MPI_SUCCESS;
}

int main(int argc, char **argv)
{
    MPI_Datatype t, u;
    int key, quiet, flag;
    void *value;
    start(&argc, &argv);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Type_create_keyval(copy, forget, &key, &copied);
    MPI_Type_create_keyval(MPI_TYPE_NULL_COPY_FN, MPI_TYPE_NULL_DELETE_FN, &quiet, NULL);
    MPI_Type_contiguous(3, MPI_INT, &t);
    MPI_Type_get_attr(t, key, &value, &flag);
    CHECK(flag == 0);
    MPI_Type_set_attr(t, key, (void *)100);
    MPI_Type_set_attr(t, quiet, (void *)200);
    MPI_Type_dup(t, &u);
    CHECK(copied == 1);
    MPI_Type_get_attr(u, key, &value, &flag);
    CHECK(flag && value == (void *)101);
    MPI_Type_get_attr(u, quiet, &value, &flag);
    CHECK(!flag);
    MPI_Type_get_attr(t, quiet, &value, &flag);
    CHECK(flag && value == (void *)200);
    MPI_Type_delete_attr(t, quiet);
    MPI_Type_get_attr(t, quiet, &value, &flag);
    CHECK(!flag && deleted == 0);
    MPI_Type_free(&t);
    CHECK(deleted == 1);

    /* A type whose delete callback fails is not freed. */
    MPI_Type_set_attr(u, key, (void *)13);
    CHECK(deleted == 2);
    CHECK(MPI_Type_free(&u) != MPI_SUCCESS);
    int size = 0;
    CHECK(u != MPI_DATATYPE_NULL && MPI_Type_size(u, &size) == MPI_SUCCESS && size == 12);

    MPI_Type_free_keyval(&key);
    CHECK(key == MPI_KEYVAL_INVALID);
    MPI_Type_free_keyval(&quiet);
    return finish();
}
