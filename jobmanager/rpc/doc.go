// Package rpc serves users, tools and TaskManagers: JobService, MembershipService and SessionService.
//
// Whatever changes or shows jobs is answered by the leader; other members refuse with a *grpcerr.NotLeaderError that names the leader
// where it is known. Requests that change something carry the client's request id, so that one whose outcome is unknown can be
// repeated.
package rpc
