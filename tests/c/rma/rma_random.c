/* test: ranks=1,2,3,4,8
   Random accumulates of all ranks compared with a model. Every rank knows the operations of every other, because all
   draw from the same seeds. Each word has one commutative operation, so the result is independent of order.
   Intermediate values read must be possible values of the word. MPI_TEST_SEED=N repeats a run. */
#include "rma_check.h"

enum { WORDS = 64, MOST = 12 };

static unsigned long long state;

static unsigned draw(unsigned below)
{
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    return (unsigned)(state >> 33) % below;
}

static const MPI_Op ops[] = {MPI_SUM, MPI_BXOR, MPI_MAX, MPI_MIN, MPI_BOR, MPI_BAND};

/* Operation of a word: consecutive words in a run share one operation. */
static int op_of(int word)
{
    return word / 16 % 6;
}

static unsigned combine(int op, unsigned value, unsigned old)
{
    switch (op) {
    case 0: return old + value;
    case 1: return old ^ value;
    case 2: return value > old ? value : old;
    case 3: return value < old ? value : old;
    case 4: return old | value;
    default: return old & value;
    }
}

/* One step: target, first word, number of words, operand, form. All words have one operation. */
struct step { int target, first, n, form; unsigned values[MOST]; };

static struct step next_step(void)
{
    struct step step;
    step.target = (int)draw((unsigned)ranks);
    step.first = (int)draw(WORDS);
    int room = 16 - step.first % 16;
    step.n = 1 + (int)draw((unsigned)(room < MOST ? room : MOST));
    step.form = (int)draw(5);
    for (int i = 0; i < MOST; i++)
        step.values[i] = draw(1000);
    return step;
}

static void seed(unsigned long long number, int of)
{
    state = number * 1000003 + (unsigned)of * 7919 + 17;
    draw(2);
}

static void run(int kind, int steps, unsigned long long number)
{
    struct window w = make_window(kind, WORDS * sizeof(unsigned), sizeof(unsigned));
    unsigned *model = calloc((size_t)ranks * WORDS, sizeof *model), got[WORDS];
    for (int of = 0; of < ranks; of++) {
        seed(number, of);
        for (int i = 0; i < steps; i++) {
            struct step s = next_step();
            for (int k = 0; k < s.n; k++) {
                unsigned *word = model + s.target * WORDS + s.first + k;
                *word = combine(op_of(s.first), s.values[k], *word);
            }
        }
    }
    seed(number, rank);
    OK(MPI_Win_lock_all(0, w.win));
    unsigned last[WORDS] = {0};
    /* Separate memory for each result, because fetches are not flushed. */
    unsigned *results = calloc((size_t)steps * MOST, sizeof *results);
    for (int i = 0; i < steps; i++) {
        struct step s = next_step();
        MPI_Op op = ops[op_of(s.first)];
        MPI_Aint at = place(&w, s.target, (size_t)s.first * sizeof(unsigned), sizeof(unsigned));
        unsigned *result = results + i * MOST;
        MPI_Request request;
        switch (s.form) {
        case 0:
            OK(MPI_Accumulate(s.values, s.n, MPI_UNSIGNED, s.target, at, s.n, MPI_UNSIGNED, op, w.win));
            break;
        case 1:
            OK(MPI_Raccumulate(s.values, s.n, MPI_UNSIGNED, s.target, at, s.n, MPI_UNSIGNED, op, w.win, &request));
            OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
            break;
        case 2:
            OK(MPI_Get_accumulate(s.values, s.n, MPI_UNSIGNED, result, s.n, MPI_UNSIGNED, s.target, at, s.n, MPI_UNSIGNED, op,
                                  w.win));
            OK(MPI_Win_flush(s.target, w.win));
            /* An increasing word has not decreased since this rank last read it. */
            for (int k = 0; k < s.n && s.target == 0 && op == MPI_MAX; k++) {
                CHECK(result[k] >= last[s.first + k]);
                last[s.first + k] = result[k];
            }
            break;
        case 3:
            for (int k = 0; k < s.n; k++)
                OK(MPI_Fetch_and_op(&s.values[k], &result[k], MPI_UNSIGNED, s.target,
                                    at + k * (is_dynamic(kind) ? 4 : 1), op, w.win));
            break;
        default:
            for (int k = 0; k < s.n; k++) {
                unsigned expected = 0, next, found;
                for (;;) {
                    next = combine(op_of(s.first), s.values[k], expected);
                    OK(MPI_Compare_and_swap(&next, &expected, &found, MPI_UNSIGNED, s.target,
                                            at + k * (is_dynamic(kind) ? 4 : 1), w.win));
                    OK(MPI_Win_flush(s.target, w.win));
                    if (found == expected)
                        break;
                    expected = found;
                }
            }
        }
    }
    OK(MPI_Win_unlock_all(w.win));
    free(results);
    meet();
    OK(MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, w.win));
    OK(MPI_Get(got, WORDS, MPI_UNSIGNED, rank, place(&w, rank, 0, sizeof(unsigned)), WORDS, MPI_UNSIGNED, w.win));
    OK(MPI_Win_unlock(rank, w.win));
    for (int i = 0; i < WORDS; i++)
        if (got[i] != model[rank * WORDS + i])
            fail(__LINE__, "word %d is %u instead of %u (kind %s, MPI_TEST_SEED=%llu)", i, got[i], model[rank * WORDS + i],
                 kind_names[kind], number);
    free(model);
    free_window(&w);
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    const char *given = getenv("MPI_TEST_SEED");
    unsigned long long first = given ? strtoull(given, NULL, 10) : 1;
    int slow = are_apart() || getenv("FASTPATH_TRANSPORTS") != NULL;
    for (int kind = 0; kind < KINDS; kind++)
        for (unsigned long long number = first; has_kind(kind) && number < first + (given || slow ? 1 : 5); number++)
            run(kind, slow ? 20 : 200, number);
    return finish();
}
