/* MPI_Alloc_mem and MPI_Free_mem: sizes, alignment, rejected arguments, and requests of all ranks that exhaust memory.
 * test: ranks=1,2,4 timeout=120 */
#include "../check.h"

#include <stdint.h>

static void take_and_free(void)
{
    static const size_t sizes[] = {0, 1, 63, 64, 100, 4096, 5000, 32768, 32769, 1 << 20, 10000019};
    enum { COUNT = sizeof sizes / sizeof *sizes, ROUNDS = 5 };
    unsigned char *piece[ROUNDS][COUNT];
    for (int round = 0; round < ROUNDS; round++)
        for (int i = 0; i < COUNT; i++) {
            OK(MPI_Alloc_mem((MPI_Aint)sizes[i], MPI_INFO_NULL, &piece[round][i]));
            CHECK(piece[round][i] && (uintptr_t)piece[round][i] % 64 == 0);
            memset(piece[round][i], round * COUNT + i, sizes[i]);
        }
    for (int round = 0; round < ROUNDS; round++)
        for (int i = 0; i < COUNT; i++) {
            for (size_t at = 0; at < sizes[i]; at += 61)
                if (piece[round][i][at] != round * COUNT + i) {
                    CHECK(!"a piece holds another's bytes");
                    break;
                }
            OK(MPI_Free_mem(piece[round][i]));
        }
}

/* Freed memory is reused. */
static void take_again(void)
{
    for (int i = 0; i < 300; i++) {
        char *piece;
        OK(MPI_Alloc_mem(4 << 20, MPI_INFO_NULL, &piece));
        if (failures)
            return;
        piece[i] = 1;
        OK(MPI_Free_mem(piece));
    }
}

static void ask_for_alignment(void)
{
    static const char *const good[] = {"1", "64", "4096", "65536", "2097152"}, *const wrong[] = {"3", "0", "big", "-8", ""};
    MPI_Info info;
    void *piece = NULL;
    OK(MPI_Info_create(&info));
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        OK(MPI_Info_set(info, "mpi_minimum_memory_alignment", good[i]));
        OK(MPI_Alloc_mem(1000, info, &piece));
        SAME((uintptr_t)piece % (uintptr_t)atoll(good[i]), 0);
        OK(MPI_Free_mem(piece));
    }
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        OK(MPI_Info_set(info, "mpi_minimum_memory_alignment", wrong[i]));
        CLASS(MPI_Alloc_mem(1000, info, &piece), MPI_ERR_INFO_VALUE);
    }
    OK(MPI_Info_free(&info));
    CLASS(MPI_Alloc_mem(1000, info, NULL), MPI_ERR_ARG);
}

static void refuse(void)
{
    char local[64], *piece = NULL;
    CLASS(MPI_Alloc_mem(-1, MPI_INFO_NULL, &piece), MPI_ERR_ARG);
    CLASS(MPI_Alloc_mem((MPI_Aint)1 << 50, MPI_INFO_NULL, &piece), MPI_ERR_NO_MEM);
    CLASS(MPI_Alloc_mem((MPI_Aint)1 << 39, MPI_INFO_NULL, &piece), MPI_ERR_NO_MEM);
    CHECK(!piece);
    CLASS(MPI_Free_mem(local), MPI_ERR_BASE);
    CLASS(MPI_Free_mem((void *)(uintptr_t)~(uintptr_t)0), MPI_ERR_BASE);
    OK(MPI_Free_mem(NULL));
    OK(MPI_Alloc_mem(100, MPI_INFO_NULL, &piece));
    CLASS(MPI_Free_mem(piece + 8), MPI_ERR_BASE);
    OK(MPI_Free_mem(piece));
    CLASS(MPI_Free_mem(piece), MPI_ERR_BASE);
}

/* All ranks allocate and write memory until an allocation fails: it must return an error and raise no signal. */
static void take_all(void)
{
    enum { STEP = 16 << 20, MOST = 65536 };
    static char *piece[MOST];
    int count = 0, code = MPI_SUCCESS;
    while (count < MOST && code == MPI_SUCCESS) {
        code = MPI_Alloc_mem(STEP, MPI_INFO_NULL, &piece[count]);
        if (code == MPI_SUCCESS)
            memset(piece[count++], 1, STEP);
    }
    if (count < MOST)
        SAME(class_of(code), MPI_ERR_NO_MEM);
    while (count > 0)
        OK(MPI_Free_mem(piece[--count]));
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    if (argc > 1) {
        take_all();
    } else {
        take_and_free();
        take_again();
        ask_for_alignment();
        refuse();
    }
    meet();
    return finish();
}
