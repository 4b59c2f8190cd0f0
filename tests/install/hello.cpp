// Prints the version of the MPI library in use, without MPI_Init.
#include <iostream>
#include <mpi.h>
#include <string>

int main()
{
    char text[MPI_MAX_LIBRARY_VERSION_STRING];
    int length = 0;
    MPI_Get_library_version(text, &length);
    std::cout << "hello from C++: " << std::string(text, static_cast<std::size_t>(length)) << "\n";
}
