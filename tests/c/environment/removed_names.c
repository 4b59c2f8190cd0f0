/* test: ranks=2 variants=none
   Names removed by MPI-3.0 behave like their replacements, under both prefixes, as HPL 2 and HPCC 1.5.0 call them.
   The text is valid C from C89 and C++ from C++11: the installation test builds it with each compiler. */
#define MPI_NO_DEPRECATION_WARNINGS
#include <mpi.h>
#include <stdio.h>
#include <string.h>

struct cell {
    char tag;
    double values[2];
    int last;
};

static int failures, handled;

#define CHECK(condition)                                                                    \
    do {                                                                                    \
        if (!(condition)) {                                                                 \
            failures++;                                                                     \
            fprintf(stderr, "removed_names: not so: %s\n", #condition);                     \
        }                                                                                   \
    } while (0)

static void handle(MPI_Comm *comm, int *code, ...)
{
    (void)comm;
    (void)code;
    handled++;
}

/* A message of two cells transfers the values and skips the gaps. */
static void exchange(MPI_Datatype type, int rank)
{
    struct cell sent[2], got[2];
    int i;

    memset(sent, 0, sizeof sent);
    memset(got, 0, sizeof got);
    for (i = 0; i < 2; i++) {
        sent[i].tag = (char)(1 + rank + i);
        sent[i].values[0] = 10 * rank + i;
        sent[i].values[1] = 20 * rank + i;
        sent[i].last = 30 * rank + i;
    }
    MPI_Sendrecv(sent, 2, type, 1 - rank, 0, got, 2, type, 1 - rank, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    for (i = 0; i < 2; i++)
        CHECK(got[i].tag == 2 - rank + i && got[i].values[0] == 10 * (1 - rank) + i &&
              got[i].values[1] == 20 * (1 - rank) + i && got[i].last == 30 * (1 - rank) + i);
}

#define TEST_TYPES(prefix)                                                                  \
    do {                                                                                    \
        struct cell cell;                                                                   \
        int lengths[3] = {1, 2, 1}, size;                                                   \
        MPI_Aint places[3], base, lb, ub, extent;                                           \
        MPI_Datatype types[3], type;                                                        \
        memset(&cell, 0, sizeof cell);                                                      \
        types[0] = MPI_CHAR;                                                                \
        types[1] = MPI_DOUBLE;                                                              \
        types[2] = MPI_INT;                                                                 \
        CHECK(prefix##_Address(&cell, &base) == MPI_SUCCESS && base == (MPI_Aint)&cell);    \
        prefix##_Address(&cell.tag, &places[0]);                                            \
        prefix##_Address(cell.values, &places[1]);                                          \
        prefix##_Address(&cell.last, &places[2]);                                           \
        places[0] -= base;                                                                  \
        places[1] -= base;                                                                  \
        places[2] -= base;                                                                  \
        CHECK(prefix##_Type_struct(3, lengths, places, types, &type) == MPI_SUCCESS);       \
        MPI_Type_commit(&type);                                                             \
        prefix##_Type_extent(type, &extent);                                                \
        CHECK(extent == (MPI_Aint)sizeof cell);                                             \
        exchange(type, rank);                                                               \
        MPI_Type_free(&type);                                                               \
        lengths[0] = 2;                                                                     \
        places[0] = 8;                                                                      \
        places[1] = 32;                                                                     \
        CHECK(prefix##_Type_hindexed(2, lengths, places, MPI_INT, &type) == MPI_SUCCESS);   \
        prefix##_Type_lb(type, &lb);                                                        \
        prefix##_Type_ub(type, &ub);                                                        \
        prefix##_Type_extent(type, &extent);                                                \
        MPI_Type_size(type, &size);                                                         \
        CHECK(lb == 8 && ub == 40 && extent == 32 && size == 16);                           \
        MPI_Type_free(&type);                                                               \
        CHECK(prefix##_Type_hvector(3, 1, 24, MPI_DOUBLE, &type) == MPI_SUCCESS);           \
        prefix##_Type_lb(type, &lb);                                                        \
        prefix##_Type_ub(type, &ub);                                                        \
        CHECK(lb == 0 && ub == 56);                                                         \
        MPI_Type_free(&type);                                                               \
    } while (0)

#define TEST_ERRHANDLERS(prefix)                                                            \
    do {                                                                                    \
        MPI_Handler_function *function = handle;                                            \
        MPI_Errhandler mine, before, now;                                                   \
        MPI_Aint ub;                                                                        \
        handled = 0;                                                                        \
        prefix##_Errhandler_get(MPI_COMM_WORLD, &before);                                   \
        CHECK(prefix##_Errhandler_create(function, &mine) == MPI_SUCCESS);                  \
        prefix##_Errhandler_set(MPI_COMM_WORLD, mine);                                      \
        prefix##_Errhandler_get(MPI_COMM_WORLD, &now);                                      \
        CHECK(now == mine);                                                                 \
        CHECK(MPI_Send(0, 0, MPI_INT, 99, 0, MPI_COMM_WORLD) != MPI_SUCCESS);               \
        CHECK(handled == 1);                                                                \
        prefix##_Errhandler_set(MPI_COMM_WORLD, before);                                    \
        MPI_Errhandler_free(&mine);                                                         \
        MPI_Errhandler_free(&now);                                                          \
        MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);                          \
        CHECK(prefix##_Type_ub(MPI_DATATYPE_NULL, &ub) != MPI_SUCCESS);                     \
        MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_ARE_FATAL);                       \
    } while (0)

/* Types made by old and new constructors are used side by side, as in programs of that time. */
static void test_combiners(void)
{
    MPI_Datatype type;
    int integers, addresses, types, combiner;

    MPI_Type_create_hvector(2, 1, 8, MPI_INT, &type);
    MPI_Type_get_envelope(type, &integers, &addresses, &types, &combiner);
    switch (combiner) {
    case MPI_COMBINER_HVECTOR:
    case MPI_COMBINER_HVECTOR_INTEGER:
        break;
    case MPI_COMBINER_HINDEXED:
    case MPI_COMBINER_HINDEXED_INTEGER:
    case MPI_COMBINER_STRUCT:
    case MPI_COMBINER_STRUCT_INTEGER:
    default:
        CHECK(!"a vector");
    }
    MPI_Type_free(&type);
}

int main(int argc, char **argv)
{
    int rank;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    TEST_TYPES(MPI);
    TEST_TYPES(PMPI);
    TEST_ERRHANDLERS(MPI);
    TEST_ERRHANDLERS(PMPI);
    test_combiners();
    MPI_Finalize();
    return failures != 0;
}
