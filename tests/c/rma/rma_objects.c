/* test: ranks=1,2,3,4,8
   Properties of a window: predefined and user attributes, name, info, group, error handler, shared query, large
   counts of bytes and units, attached and detached memory. */
#include "rma_check.h"

static int deleted, handled;

static int on_delete(MPI_Win win, int key, void *value, void *extra)
{
    (void)win, (void)key, (void)extra;
    deleted += *(int *)value;
    return MPI_SUCCESS;
}

static void on_error(MPI_Win *win, int *code, ...)
{
    (void)win;
    handled = class_of(*code);
}

static void test_attributes(void)
{
    const int flavors[KINDS] = {MPI_WIN_FLAVOR_CREATE, MPI_WIN_FLAVOR_CREATE, MPI_WIN_FLAVOR_ALLOCATE, MPI_WIN_FLAVOR_SHARED,
                                MPI_WIN_FLAVOR_DYNAMIC, MPI_WIN_FLAVOR_DYNAMIC};
    int key, value = 3, flag = -1, *found;
    OK(MPI_Win_create_keyval(MPI_WIN_NULL_COPY_FN, on_delete, &key, NULL));
    for (int kind = 0; kind < KINDS; kind++) {
        if (!has_kind(kind))
            continue;
        struct window w = make_window(kind, 1000 + (size_t)rank, 1 + rank % 2);
        void *base, *number;
        OK(MPI_Win_get_attr(w.win, MPI_WIN_BASE, &base, &flag));
        CHECK(flag && base == (is_dynamic(kind) ? MPI_BOTTOM : w.base));
        OK(MPI_Win_get_attr(w.win, MPI_WIN_SIZE, &number, &flag));
        CHECK(flag);
        SAME(*(MPI_Aint *)number, is_dynamic(kind) ? 0 : 1000 + rank);
        OK(MPI_Win_get_attr(w.win, MPI_WIN_DISP_UNIT, &number, &flag));
        SAME(*(int *)number, is_dynamic(kind) ? 1 : 1 + rank % 2);
        OK(MPI_Win_get_attr(w.win, MPI_WIN_CREATE_FLAVOR, &number, &flag));
        SAME(*(int *)number, flavors[kind]);
        OK(MPI_Win_get_attr(w.win, MPI_WIN_MODEL, &number, &flag));
        SAME(*(int *)number, MPI_WIN_UNIFIED);
        OK(MPI_Win_get_attr(w.win, key, &found, &flag));
        SAME(flag, 0);
        OK(MPI_Win_set_attr(w.win, key, &value));
        OK(MPI_Win_get_attr(w.win, key, &found, &flag));
        CHECK(flag && found == &value);
        OK(MPI_Win_delete_attr(w.win, key));
        SAME(deleted, 3);
        OK(MPI_Win_set_attr(w.win, key, &value));
        free_window(&w);
        SAME(deleted, 6);
        deleted = 0;
    }
    OK(MPI_Win_free_keyval(&key));
}

static void test_names_and_groups(void)
{
    struct window w = make_window(ALLOCATED, 8, 8);
    char name[MPI_MAX_OBJECT_NAME] = "x";
    int length = -1, result, size;
    OK(MPI_Win_get_name(w.win, name, &length));
    CHECK(length == 0 && name[0] == 0);
    OK(MPI_Win_set_name(w.win, "halo"));
    OK(MPI_Win_get_name(w.win, name, &length));
    CHECK(length == 4 && strcmp(name, "halo") == 0);
    MPI_Group group, world;
    OK(MPI_Win_get_group(w.win, &group));
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    MPI_Group_compare(group, world, &result);
    SAME(result, MPI_IDENT);
    MPI_Group_size(group, &size);
    SAME(size, ranks);
    MPI_Group_free(&group);
    MPI_Group_free(&world);
    CHECK(MPI_Win_fromint(MPI_Win_toint(w.win)) == w.win);
    /* A window may outlive the communicator it was created on. */
    MPI_Comm copy;
    MPI_Win over;
    int *base, put = 40 + rank;
    MPI_Comm_dup(MPI_COMM_WORLD, &copy);
    OK(MPI_Win_allocate(sizeof(int), sizeof(int), MPI_INFO_NULL, copy, &base, &over));
    MPI_Comm_free(&copy);
    OK(MPI_Win_fence(0, over));
    OK(MPI_Put(&put, 1, MPI_INT, (rank + 1) % ranks, 0, 1, MPI_INT, over));
    OK(MPI_Win_fence(0, over));
    SAME(*base, 40 + (rank + ranks - 1) % ranks);
    OK(MPI_Win_free(&over));
    free_window(&w);
}

static const char *hint(MPI_Win win, const char *key)
{
    static char value[MPI_MAX_INFO_VAL];
    int length = sizeof value, flag = 0;
    MPI_Info info;
    OK(MPI_Win_get_info(win, &info));
    OK(MPI_Info_get_string(info, key, &length, value, &flag));
    MPI_Info_free(&info);
    return flag ? value : "(none)";
}

static void test_info(void)
{
    MPI_Info info;
    MPI_Info_create(&info);
    MPI_Info_set(info, "no_locks", "true");
    MPI_Info_set(info, "accumulate_ordering", "none");
    MPI_Info_set(info, "something_else", "true");
    MPI_Info_set(info, "mpi_minimum_memory_alignment", "4096");
    char *base;
    MPI_Win win;
    OK(MPI_Win_allocate(100, 1, info, MPI_COMM_WORLD, &base, &win));
    CHECK((size_t)base % 4096 == 0);
    CHECK(strcmp(hint(win, "no_locks"), "true") == 0 && strcmp(hint(win, "accumulate_ordering"), "none") == 0);
    CHECK(strcmp(hint(win, "something_else"), "(none)") == 0 && strcmp(hint(win, "same_size"), "false") == 0);
    CHECK(strcmp(hint(win, "accumulate_ops"), "same_op_no_op") == 0);
    MPI_Info_set(info, "no_locks", "false");
    MPI_Info_set(info, "same_size", "true");
    MPI_Info_set(info, "same_disp_unit", "true");
    MPI_Info_set(info, "mpi_accumulate_granularity", "64");
    MPI_Info_set(info, "accumulate_ops", "any_op_at_all");
    OK(MPI_Win_set_info(win, info));
    CHECK(strcmp(hint(win, "same_disp_unit"), "true") == 0);
    CHECK(strcmp(hint(win, "mpi_accumulate_granularity"), "64") == 0);
    CHECK(strcmp(hint(win, "accumulate_ops"), "same_op_no_op") == 0);
    MPI_Info_set(info, "mpi_accumulate_granularity", "some");
    OK(MPI_Win_set_info(win, info));
    CHECK(strcmp(hint(win, "mpi_accumulate_granularity"), "64") == 0);
    CHECK(strcmp(hint(win, "no_locks"), "false") == 0 && strcmp(hint(win, "same_size"), "true") == 0);
    OK(MPI_Win_free(&win));
    MPI_Info_free(&info);
}

static void test_errhandler(void)
{
    struct window w = make_window(FROM_HEAP, 8, 1);
    MPI_Errhandler handler, found;
    OK(MPI_Win_get_errhandler(w.win, &found));
    CHECK(found == MPI_ERRORS_ARE_FATAL);
    OK(MPI_Win_create_errhandler(on_error, &handler));
    OK(MPI_Win_set_errhandler(w.win, handler));
    OK(MPI_Win_get_errhandler(w.win, &found));
    CHECK(found == handler);
    MPI_Errhandler_free(&found);
    OK(MPI_Win_call_errhandler(w.win, MPI_ERR_OTHER));
    SAME(handled, MPI_ERR_OTHER);
    CHECK(MPI_Win_unlock(0, w.win) != MPI_SUCCESS);
    SAME(handled, MPI_ERR_RMA_SYNC);
    OK(MPI_Win_set_errhandler(w.win, MPI_ERRORS_RETURN));
    MPI_Errhandler_free(&handler);
    CLASS(MPI_Win_unlock(0, w.win), MPI_ERR_RMA_SYNC);
    free_window(&w);
}

/* In a shared window the memory of all ranks is contiguous, unless a hint allows otherwise. */
static void test_shared(const char *noncontig)
{
    MPI_Info info;
    MPI_Info_create(&info);
    MPI_Info_set(info, "alloc_shared_noncontig", noncontig);
    MPI_Win win;
    int *base, *of, unit;
    MPI_Aint size, own = rank == 1 ? 0 : (MPI_Aint)sizeof(int) * (10 + rank);
    OK(MPI_Win_allocate_shared(own, sizeof(int), info, MPI_COMM_WORLD, &base, &win));
    CHECK(strcmp(hint(win, "alloc_shared_noncontig"), noncontig) == 0);
    OK(MPI_Win_lock_all(MPI_MODE_NOCHECK, win));
    for (int i = 0; own && i < 10 + rank; i++)
        base[i] = 1000 * rank + i;
    OK(MPI_Win_sync(win));
    meet();
    OK(MPI_Win_sync(win));
    int *end = NULL;
    for (int from = 0; from < ranks; from++) {
        OK(MPI_Win_shared_query(win, from, &size, &unit, &of));
        SAME(size, from == 1 ? 0 : (long)sizeof(int) * (10 + from));
        SAME(unit, sizeof(int));
        for (int i = 0; size && i < 10 + from; i++)
            SAME(of[i], 1000 * from + i);
        if (size && end && noncontig[0] == 'f')
            CHECK(of == end);
        if (size)
            end = of + 10 + from;
    }
    OK(MPI_Win_shared_query(win, MPI_PROC_NULL, &size, &unit, &of));
    CHECK(size == 10 * sizeof(int) && of[3] == 3);
    MPI_Aint large_unit;
    OK(MPI_Win_shared_query_c(win, 0, &size, &large_unit, &of));
    SAME(large_unit, sizeof(int));
    meet();
    OK(MPI_Win_unlock_all(win));
    OK(MPI_Win_free(&win));
    MPI_Info_free(&info);
}

/* Memory is attached and detached while others access the remaining pieces. */
static void test_dynamic(void)
{
    enum { PIECES = 40 };
    MPI_Win win;
    OK(MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &win));
    int *pieces[PIECES], value, right = (rank + 1) % ranks;
    MPI_Aint own[PIECES], theirs[PIECES];
    for (int i = 0; i < PIECES; i++) {
        pieces[i] = allocate(sizeof(int) * (size_t)(i + 1));
        pieces[i][i] = 100 * rank + i;
        OK(MPI_Win_attach(win, pieces[i], (MPI_Aint)sizeof(int) * (i + 1)));
        MPI_Get_address(pieces[i], &own[i]);
    }
    OK(MPI_Win_attach(win, NULL, 0));
    MPI_Sendrecv(own, PIECES, MPI_AINT, (rank + ranks - 1) % ranks, 0, theirs, PIECES, MPI_AINT, right, 0, meeting,
                 MPI_STATUS_IGNORE);
    for (int round = 0; round < 2; round++) {
        OK(MPI_Win_lock(MPI_LOCK_SHARED, right, 0, win));
        for (int i = round ? PIECES / 2 : 0; i < PIECES; i++) {
            OK(MPI_Get(&value, 1, MPI_INT, right, MPI_Aint_add(theirs[i], (MPI_Aint)sizeof(int) * i), 1, MPI_INT, win));
            OK(MPI_Win_flush(right, win));
            SAME(value, 100 * right + i);
        }
        OK(MPI_Win_unlock(right, win));
        meet();
        for (int i = 0; round == 0 && i < PIECES / 2; i++) {
            OK(MPI_Win_detach(win, pieces[i]));
            free(pieces[i]);
        }
        meet();
    }
    OK(MPI_Win_free(&win));
    for (int i = PIECES / 2; i < PIECES; i++)
        free(pieces[i]);
}

/* One datatype over separate pieces: the memory between them is not attached. */
static void test_pieces(void)
{
    enum { PIECES = 3, STEP = 1000, BYTES = 400, VALUES = PIECES * BYTES / 4 };
    MPI_Win win;
    unsigned char *memory = allocate(PIECES * STEP);
    int values[VALUES], got[VALUES + PIECES], right = (rank + 1) % ranks, left = (rank + ranks - 1) % ranks;
    MPI_Aint own, theirs, places[PIECES];
    MPI_Datatype type, beyond;
    OK(MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &win));
    memset(memory, 0, PIECES * STEP);
    for (int i = 0; i < PIECES; i++)
        OK(MPI_Win_attach(win, memory + i * STEP, BYTES));
    MPI_Get_address(memory, &own);
    MPI_Sendrecv(&own, 1, MPI_AINT, left, 0, &theirs, 1, MPI_AINT, right, 0, meeting, MPI_STATUS_IGNORE);
    for (int i = 0; i < PIECES; i++)
        places[i] = MPI_Aint_add(theirs, i * STEP);
    OK(MPI_Type_create_hindexed_block(PIECES, BYTES / 4, places, MPI_INT, &type));
    OK(MPI_Type_commit(&type));
    OK(MPI_Type_create_hindexed_block(PIECES, BYTES / 4 + 1, places, MPI_INT, &beyond));
    OK(MPI_Type_commit(&beyond));
    for (int i = 0; i < VALUES; i++)
        values[i] = 1000 * rank + i;
    MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN);
    OK(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, right, 0, win));
    CLASS(MPI_Get(got, VALUES + PIECES, MPI_INT, right, 0, 1, beyond, win), MPI_ERR_RMA_RANGE);
    OK(MPI_Put(values, VALUES, MPI_INT, right, 0, 1, type, win));
    OK(MPI_Win_flush(right, win));
    OK(MPI_Accumulate(values, VALUES, MPI_INT, right, 0, 1, type, MPI_SUM, win));
    OK(MPI_Win_flush(right, win));
    OK(MPI_Get(got, VALUES, MPI_INT, right, 0, 1, type, win));
    OK(MPI_Win_unlock(right, win));
    for (int i = 0; i < VALUES; i++)
        SAME(got[i], 2 * values[i]);
    meet();
    OK(MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, win));
    for (int i = 0; i < PIECES; i++)
        for (int k = 0; k < BYTES / 4; k++)
            SAME(((int *)(memory + i * STEP))[k], 2 * (1000 * left + i * BYTES / 4 + k));
    OK(MPI_Win_unlock(rank, win));
    meet();
    OK(MPI_Win_free(&win));
    MPI_Type_free(&type);
    MPI_Type_free(&beyond);
    free(memory);
}

/* Many windows at once, and in sequence. */
static void test_many(void)
{
    enum { N = 60 };
    MPI_Win wins[N];
    int *bases[N], value;
    for (int i = 0; i < N; i++) {
        OK(MPI_Win_allocate(sizeof(int), 1, MPI_INFO_NULL, MPI_COMM_WORLD, &bases[i], &wins[i]));
        *bases[i] = 0;
        OK(MPI_Win_fence(0, wins[i]));
    }
    for (int i = 0; i < N; i++) {
        value = i + rank;
        OK(MPI_Put(&value, 1, MPI_INT, (rank + 1) % ranks, 0, 1, MPI_INT, wins[i]));
        OK(MPI_Win_fence(0, wins[i]));
    }
    for (int i = 0; i < N; i++) {
        SAME(*bases[i], i + (rank + ranks - 1) % ranks);
        OK(MPI_Win_free(&wins[i]));
    }
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    test_attributes();
    test_names_and_groups();
    test_info();
    test_errhandler();
    if (has_kind(SHARED)) {
        test_shared("false");
        test_shared("true");
    }
    test_dynamic();
    test_pieces();
    test_many();
    return finish();
}
