/* Attributes in C for fortran_attributes.f90, which calls these by Fortran's names. */
#include <mpi.h>
#include <stddef.h>
#include <stdint.h>

static int copies, deletes;
static int values[2] = {11, 22};

static int copy(MPI_Comm comm, int key, void *state, void *value, void *new_value, int *flag)
{
    (void)comm, (void)key, (void)state;
    copies++;
    *(void **)new_value = value;
    *flag = 1;
    return MPI_SUCCESS;
}

static int drop(MPI_Comm comm, int key, void *value, void *state)
{
    (void)comm, (void)key, (void)value, (void)state;
    deletes++;
    return MPI_SUCCESS;
}

void c_create_key_(int *key)
{
    MPI_Comm_create_keyval(copy, drop, key, NULL);
}

/* Sets the address of one of two variables; returns it. */
void c_set_(const int *comm, const int *key, const int *which, int64_t *address)
{
    MPI_Comm_set_attr(MPI_Comm_fromint(*comm), *key, &values[*which]);
    *address = (int64_t)(intptr_t)&values[*which];
}

/* Reads an attribute set in Fortran: C gets the address of an integer. */
void c_get_(const int *comm, const int *key, int64_t *value, int *flag)
{
    int64_t *found = NULL;
    MPI_Comm_get_attr(MPI_Comm_fromint(*comm), *key, &found, flag);
    *value = *flag ? *found : -1;
}

/* Reads an attribute that MPI_Attr_put set: C gets the address of an int. */
void c_get_int_(const int *comm, const int *key, int *value, int *flag)
{
    int *found = NULL;
    MPI_Comm_get_attr(MPI_Comm_fromint(*comm), *key, &found, flag);
    *value = *flag ? *found : -1;
}

/* Whether C's own attribute is as C has set it. */
void c_has_(const int *comm, const int *key, const int *which, int *is_same)
{
    int flag, *found = NULL;
    MPI_Comm_get_attr(MPI_Comm_fromint(*comm), *key, &found, &flag);
    *is_same = flag && found == &values[*which];
}

void c_calls_(int *copied, int *deleted)
{
    *copied = copies;
    *deleted = deletes;
}
