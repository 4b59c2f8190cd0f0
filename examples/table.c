/* A hash table over all ranks: each has a share of the slots in a window, and any rank inserts and counts words there
 * without the help of the slot's owner.
 *
 * Every rank generates a text from its own seed; many of its words are equal. A slot has a word's number and its count.
 * A rank searches the slot of a word from its hash value on (linear probing):
 *
 *   MPI_Compare_and_swap   claims a free slot, or returns its word
 *   MPI_Accumulate         adds 1 to its count
 *
 * All calls are inside one MPI_Win_lock_all epoch, so no rank waits for another. At the end every rank reads all shares
 * with MPI_Get and compares: each word must be there once, with the count that a single rank computes.
 *
 * usage: mpiexec -n 4 table [WORDS]
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Text of a rank. Any rank can generate it from its seed. */
typedef struct {
    unsigned long long state;
    long kinds; /* number of distinct words */
} Text;

typedef struct {
    long long word; /* 0 if the slot is free */
    long long count;
} Slot;

typedef struct {
    MPI_Win win;
    Slot *own;
    long share; /* slots of each rank */
    long slots; /* of all */
    int ranks;
} Table;

static Text read_text(int rank, long kinds)
{
    return (Text){.state = 88172645463325252ull + (unsigned)rank * 7919ull, .kinds = kinds};
}

/* Returns the next word, a number from 1 on. Small numbers are more frequent, as words in a language. */
static long long next_word(Text *text)
{
    text->state ^= text->state << 13;
    text->state ^= text->state >> 7;
    text->state ^= text->state << 17;
    unsigned long long wide = text->state >> 11;
    double fraction = (double)wide / (double)(1ull << 53);
    return 1 + (long long)((double)text->kinds * fraction * fraction * fraction);
}

static long hash(const Table *table, long long word)
{
    unsigned long long mixed = (unsigned long long)word * 11400714819323198485ull;
    mixed ^= mixed >> 29;
    return (long)(mixed * 11400714819323198485ull % (unsigned long long)table->slots);
}

static Table open_table(long slots)
{
    Table table;
    MPI_Comm_size(MPI_COMM_WORLD, &table.ranks);
    table.share = (slots + table.ranks - 1) / table.ranks;
    table.slots = table.share * table.ranks;
    MPI_Win_allocate(table.share * (MPI_Aint)sizeof(Slot), sizeof(long long), MPI_INFO_NULL, MPI_COMM_WORLD, &table.own,
                     &table.win);
    memset(table.own, 0, (size_t)table.share * sizeof(Slot));
    MPI_Win_fence(MPI_MODE_NOPRECEDE | MPI_MODE_NOSUCCEED, table.win);
    return table;
}

/* Adds 1 to a word's count; returns the number of slots probed. */
static long count_word(const Table *table, long long word)
{
    const long long one = 1, empty = 0;
    for (long step = 0; step < table->slots; step++) {
        long slot = (hash(table, word) + step) % table->slots;
        int owner = (int)(slot / table->share);
        MPI_Aint at = 2 * (slot % table->share);
        long long found;
        MPI_Compare_and_swap(&word, &empty, &found, MPI_LONG_LONG, owner, at, table->win);
        MPI_Win_flush(owner, table->win);
        if (found == empty || found == word) {
            MPI_Accumulate(&one, 1, MPI_LONG_LONG, owner, at + 1, 1, MPI_LONG_LONG, MPI_SUM, table->win);
            return step + 1;
        }
    }
    fprintf(stderr, "table: it is full\n");
    MPI_Abort(MPI_COMM_WORLD, 1);
    return 0;
}

/* Counts all words of all ranks locally. */
static long long *count_alone(int ranks, long words, long kinds)
{
    long long *counts = calloc((size_t)kinds + 2, sizeof *counts);
    for (int rank = 0; counts && rank < ranks; rank++) {
        Text text = read_text(rank, kinds);
        for (long i = 0; i < words; i++)
            counts[next_word(&text)]++;
    }
    return counts;
}

/* Reads all slots and subtracts their counts: no count may remain or become negative, and no word may be there
 * twice. */
static long check(const Table *table, long long *counts, long kinds)
{
    long wrong = 0;
    Slot *slots = malloc((size_t)table->share * sizeof *slots);
    for (int owner = 0; slots && owner < table->ranks; owner++) {
        int numbers = (int)(2 * table->share);
        MPI_Get(slots, numbers, MPI_LONG_LONG, owner, 0, numbers, MPI_LONG_LONG, table->win);
        MPI_Win_flush(owner, table->win);
        for (long i = 0; i < table->share; i++) {
            long long word = slots[i].word;
            if (word == 0)
                continue;
            if (word < 0 || word > kinds + 1 || counts[word] != slots[i].count || slots[i].count == 0)
                wrong++;
            else
                counts[word] = 0;
        }
    }
    for (long word = 0; word <= kinds + 1; word++)
        wrong += counts[word] != 0;
    free(slots);
    return slots ? wrong : 1;
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    int rank, ranks;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    long words = argc > 1 ? atol(argv[1]) : 100000, kinds = words / 10 + 1, probes = 0, all = 0, wrong, all_wrong = 0;
    Table table = open_table(2 * kinds);
    Text text = read_text(rank, kinds);

    MPI_Barrier(MPI_COMM_WORLD);
    double began = MPI_Wtime();
    MPI_Win_lock_all(0, table.win);
    for (long i = 0; i < words; i++)
        probes += count_word(&table, next_word(&text));
    MPI_Win_flush_all(table.win);
    double took = MPI_Wtime() - began;
    MPI_Barrier(MPI_COMM_WORLD);

    long long *counts = count_alone(ranks, words, kinds);
    wrong = counts ? check(&table, counts, kinds) : 1;
    MPI_Win_unlock_all(table.win);
    MPI_Reduce(&probes, &all, 1, MPI_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
    MPI_Allreduce(&wrong, &all_wrong, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0) {
        printf("%d ranks counted %ld words each, in %.0f ns a word, looking at %.2f slots on average\n", ranks, words,
               1e9 * took / (double)words, (double)all / ((double)words * ranks));
        puts(all_wrong ? "the table is wrong" : "the table is right: each word once, with its count");
    }
    free(counts);
    MPI_Win_free(&table.win);
    MPI_Finalize();
    return all_wrong != 0;
}
