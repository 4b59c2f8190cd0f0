/* Random messages of all sizes between ranks that compute at times, with a progress thread. They are started, tested
 * and waited for in any order. Their data is checked.
 * test: ranks=2,4 timeout=120 variants=none env=FASTPATH_PROGRESS=thread args=1,single;2,multiple;3,check */
#include "../check.h"

#define ROUNDS 300
#define SLOTS 12
#define MOST (1 << 20)

static unsigned long long state;
static unsigned draw(unsigned below)
{
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    return (unsigned)(state >> 33) % below;
}

/* Message size by seed, which both sides know. */
static int bytes_of(unsigned seed)
{
    static const int sizes[] = {0, 1, 8, 48, 49, 100, 2000, 4096, 10000, 40000, 65536, 200000, MOST};
    return sizes[seed * 2654435761u % (sizeof sizes / sizeof *sizes)];
}

static void compute(unsigned long work)
{
    for (volatile unsigned long i = 0; i < work; i++)
        continue;
}

int main(int argc, char **argv)
{
    unsigned seed = argc > 1 ? (unsigned)atoi(argv[1]) : 1;
    int level = argc > 2 && strcmp(argv[2], "multiple") == 0 ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE, given;
    if (argc > 2 && strcmp(argv[2], "check") == 0)
        setenv("FASTPATH_CHECK", "1", 1);
    OK(MPI_Init_thread(&argc, &argv, level, &given));
    OK(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
    OK(MPI_Comm_size(MPI_COMM_WORLD, &ranks));
    OK(MPI_Comm_dup(MPI_COMM_WORLD, &meeting));
    unsigned char *buffers = allocate((size_t)2 * SLOTS * MOST);
    MPI_Request requests[2 * SLOTS];
    for (unsigned round = 0; round < ROUNDS; round++) {
        int slots = 1 + (int)((seed + round) * 40503u % SLOTS), shift = 1 + (int)(round % (unsigned)(ranks - 1));
        int to = (rank + shift) % ranks, from = (rank + ranks - shift) % ranks;
        state = ((unsigned long long)seed << 40) + round * 1000 + (unsigned)rank;
        for (int i = 0; i < 2 * slots; i++)
            requests[i] = MPI_REQUEST_NULL;
        /* Receives and sends in an order that each rank draws. */
        for (int left = 2 * slots; left > 0;) {
            int i = (int)draw((unsigned)(2 * slots));
            if (requests[i] != MPI_REQUEST_NULL)
                continue;
            unsigned char *buffer = buffers + (size_t)i * MOST;
            int tag = i / 2, sends = i % 2, bytes = bytes_of(round * 100 + (unsigned)tag + seed);
            unsigned number = round * 7919 + (unsigned)tag * 31 + (unsigned)(sends ? rank : from);
            if (sends)
                fill(buffer, (size_t)bytes, number);
            if (!sends)
                OK(MPI_Irecv(buffer, bytes, MPI_BYTE, draw(8) ? from : ranks == 2 ? MPI_ANY_SOURCE : from, tag,
                             MPI_COMM_WORLD, &requests[i]));
            else if (draw(4) == 0)
                OK(MPI_Issend(buffer, bytes, MPI_BYTE, to, tag, MPI_COMM_WORLD, &requests[i]));
            else
                OK(MPI_Isend(buffer, bytes, MPI_BYTE, to, tag, MPI_COMM_WORLD, &requests[i]));
            left--;
            if (draw(4) == 0)
                compute(draw(30000));
        }
        compute(draw(200000));
        for (int left = 2 * slots; left > 0;) {
            int i = (int)draw((unsigned)(2 * slots)), done = 0, many[2 * SLOTS], count;
            MPI_Status status;
            switch (draw(6)) {
            case 0:
                if (requests[i] != MPI_REQUEST_NULL) {
                    /* Two ranks that each wait only for a synchronous send could wait for each other. */
                    OK(MPI_Test(&requests[i], &done, &status));
                    left -= done;
                }
                break;
            case 1:
                OK(MPI_Waitany(2 * slots, requests, &i, &status));
                left -= i != MPI_UNDEFINED;
                break;
            case 2:
                OK(MPI_Testsome(2 * slots, requests, &count, many, MPI_STATUSES_IGNORE));
                left -= count > 0 ? count : 0;
                break;
            case 3:
                compute(draw(50000));
                break;
            case 4:
                if (left < slots) {
                    OK(MPI_Waitall(2 * slots, requests, MPI_STATUSES_IGNORE));
                    left = 0;
                }
                break;
            default:
                OK(MPI_Waitsome(2 * slots, requests, &count, many, MPI_STATUSES_IGNORE));
                left -= count > 0 ? count : 0;
            }
        }
        for (int tag = 0; tag < slots; tag++)
            HOLDS(buffers + (size_t)(2 * tag) * MOST, (size_t)bytes_of(round * 100 + (unsigned)tag + seed),
                  round * 7919 + (unsigned)tag * 31 + (unsigned)from);
    }
    free(buffers);
    return finish();
}
