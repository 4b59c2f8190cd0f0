//! What MPI means: communicator, group, datatype, operation, request.
