// Uses the header as C++ programs do.
#include <mpi.h>
#include <vector>

static_assert(sizeof(MPI_Status) == 32, "MPI_Status");
static_assert(MPI_VERSION == 5 && MPI_ANY_SOURCE == -1, "constants");

namespace {
const MPI_Datatype real = MPI_DOUBLE;

void add(void *, void *, int *, MPI_Datatype *) {}

template <typename T> struct type_of;
template <> struct type_of<int> { static MPI_Datatype get() { return MPI_INT; } };

void handle(MPI_Comm *, int *, ...) {}
} // namespace

int use(std::vector<int> &data)
{
    MPI_Op op = MPI_OP_NULL;
    MPI_Errhandler handler;
    MPI_Op_create(&add, true, &op);
    MPI_Comm_create_errhandler(handle, &handler);
    MPI_Status status{};
    MPI_Recv(data.data(), static_cast<int>(data.size()), type_of<int>::get(), 0, 0, MPI_COMM_WORLD,
             &status);
    return status.MPI_SOURCE + (real == MPI_FLOAT);
}
