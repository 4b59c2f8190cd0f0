/* Loads libraries of Fortran and calls a procedure in each: arguments are LIBRARY PROCEDURE, repeated. It is not linked
 * with MPI. */
#include <dlfcn.h>
#include <stdio.h>

int main(int argc, char **argv)
{
    for (int i = 1; i + 1 < argc; i += 2) {
        void *library = dlopen(argv[i], RTLD_NOW | RTLD_LOCAL);
        void (*call)(void) = library ? (void (*)(void))dlsym(library, argv[i + 1]) : NULL;
        if (!call) {
            fprintf(stderr, "%s\n", dlerror());
            return 2;
        }
        call();
    }
    return 0;
}
