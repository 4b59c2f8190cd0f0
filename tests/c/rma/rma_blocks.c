/* test: ranks=2,3
   Puts, gets and accumulates of many short blocks at the target, compared with a model: more blocks than one system
   call or message takes, blocks longer than a message, blocks in descending order, and elements with gaps at both
   sides. Every kind of window. */
#include "rma_check.h"

enum { BLOCKS = 5000, SPAN = 4 * BLOCKS };
enum { EVEN, DESCENDING, MIXED, SHAPES };

static struct window window;
static int *model;

/* Fills the places (in elements, ascending or not) and lengths of blocks. Returns the number of blocks. */
static int shape_of(int shape, int *places, int *lengths)
{
    for (int i = 0; i < BLOCKS; i++) {
        places[i] = 4 * (shape == DESCENDING ? BLOCKS - 1 - i : i);
        lengths[i] = shape == EVEN ? 1 : 1 + i % 4;
    }
    if (shape != MIXED)
        return BLOCKS;
    /* In the middle, one block that is longer than a message, then a gap. */
    places[1000] = 4000, lengths[1000] = 9000;
    for (int i = 1001; i < 2500; i++)
        places[i] = 13100 + 4 * (i - 1001);
    return 2500;
}

static void check_memory(void)
{
    meet();
    if (rank == ranks - 1) {
        OK(MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, window.win));
        CHECK(memcmp(window.base, model, SPAN * sizeof(int)) == 0);
        OK(MPI_Win_unlock(rank, window.win));
    }
    meet();
}

static void run(int shape)
{
    static int places[BLOCKS], lengths[BLOCKS];
    const int target = ranks - 1, blocks = shape_of(shape, places, lengths);
    const MPI_Aint base = window.at[target];
    MPI_Win win = window.win;
    MPI_Datatype there, here;
    OK(MPI_Type_indexed(blocks, lengths, places, MPI_INT, &there));
    OK(MPI_Type_commit(&there));
    int size;
    MPI_Type_size(there, &size);
    const int n = size / (int)sizeof(int);
    /* The origin's elements are two apart. */
    OK(MPI_Type_vector(n, 1, 2, MPI_INT, &here));
    OK(MPI_Type_commit(&here));
    int *from = allocate(2 * (size_t)size), *to = allocate(2 * (size_t)size);

    /* Put, put from elements with gaps, accumulate, replace, fetch and accumulate. */
    for (int kind = 0; kind < 5; kind++) {
        const int apart = kind == 1;
        for (int i = 0; i < n; i++)
            from[apart ? 2 * i : i] = 7 * i + kind;
        if (rank == 0) {
            OK(MPI_Win_lock(MPI_LOCK_SHARED, target, 0, win));
            if (kind < 2)
                OK(MPI_Put(from, apart ? 1 : n, apart ? here : MPI_INT, target, base, 1, there, win));
            else if (kind < 4)
                OK(MPI_Accumulate(from, n, MPI_INT, target, base, 1, there, kind == 2 ? MPI_SUM : MPI_REPLACE, win));
            else
                OK(MPI_Get_accumulate(from, n, MPI_INT, to, n, MPI_INT, target, base, 1, there, MPI_SUM, win));
            OK(MPI_Win_unlock(target, win));
        }
        for (int b = 0, i = 0; b < blocks; b++) {
            for (int k = 0; k < lengths[b]; k++, i++) {
                int *at = &model[places[b] + k], value = 7 * i + kind;
                if (rank == 0 && kind == 4)
                    CHECK(to[i] == *at);
                *at = kind == 2 || kind == 4 ? *at + value : value;
            }
        }
        check_memory();
    }
    for (int apart = 0; apart < 2; apart++) {
        memset(to, 0, 2 * (size_t)size);
        if (rank == 0) {
            OK(MPI_Win_lock(MPI_LOCK_SHARED, target, 0, win));
            OK(MPI_Get(to, apart ? 1 : n, apart ? here : MPI_INT, target, base, 1, there, win));
            OK(MPI_Win_unlock(target, win));
            for (int b = 0, i = 0; b < blocks; b++)
                for (int k = 0; k < lengths[b]; k++, i++) {
                    CHECK(to[apart ? 2 * i : i] == model[places[b] + k]);
                    CHECK(!apart || to[2 * i + 1] == 0);
                }
        }
    }
    meet();
    OK(MPI_Type_free(&there));
    OK(MPI_Type_free(&here));
    free(from);
    free(to);
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    model = allocate(SPAN * sizeof(int));
    for (int kind = 0; kind < KINDS; kind++) {
        if (!has_kind(kind))
            continue;
        memset(model, 0, SPAN * sizeof(int));
        window = make_window(kind, SPAN * sizeof(int), sizeof(int));
        for (int shape = 0; shape < SHAPES; shape++)
            run(shape);
        free_window(&window);
    }
    free(model);
    return finish();
}
