/* Every requested thread level is granted, or a higher one; the main thread is known.
 * test: ranks=1,2 args=0;1;2;3 */
#include "../check.h"
#include <pthread.h>

static int other_is_main = -1, level;

static void *ask(void *nothing)
{
    MPI_Is_thread_main(&other_is_main);
    return nothing;
}

int main(int argc, char **argv)
{
    static const int levels[] = {MPI_THREAD_SINGLE, MPI_THREAD_FUNNELED, MPI_THREAD_SERIALIZED, MPI_THREAD_MULTIPLE};
    int asked = levels[argc > 1 ? atoi(argv[1]) : 0], provided = -1, main_thread = -1;
    OK(MPI_Init_thread(&argc, &argv, asked, &provided));
    OK(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
    CHECK(provided >= asked);
    OK(MPI_Query_thread(&level));
    SAME(level, provided);
    OK(MPI_Is_thread_main(&main_thread));
    SAME(main_thread, 1);
    if (provided >= MPI_THREAD_FUNNELED) {
        pthread_t thread;
        pthread_create(&thread, NULL, ask, NULL);
        pthread_join(thread, NULL);
        SAME(other_is_main, 0);
    }
    OK(MPI_Finalize());
    return failures ? 1 : 0;
}
