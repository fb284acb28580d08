// Package grpcerr carries domain errors across gRPC: the server's [Encode] turns an error into a status with a reason, the client's
// [Decode] turns the status back into an error for which errors.Is answers as it would have on the server. The sentinels live here
// and not in the packages that meet them, so that a client does not link the server's code.
package grpcerr
