package command

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"unicode"

	"github.com/oklog/ulid/v2"
	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	jobv1 "github.com/weir-stream/weir/gen/job/v1"
	"github.com/weir-stream/weir/internal/client"
)

// change makes one unary request that changes something to the leader's JobService.
func change[Req, Resp proto.Message](ctx context.Context, c *client.Client, req Req,
	method func(jobv1.JobServiceClient, context.Context, Req, ...grpc.CallOption) (Resp, error),
) (resp Resp, err error) {
	err = c.Do(ctx, func(ctx context.Context, conn grpc.ClientConnInterface) (err error) {
		resp, err = method(jobv1.NewJobServiceClient(conn), ctx, req)
		return err
	})
	return resp, err
}

// ask is change for a request that changes nothing.
func ask[Req, Resp proto.Message](ctx context.Context, c *client.Client, req Req,
	method func(jobv1.JobServiceClient, context.Context, Req, ...grpc.CallOption) (Resp, error),
) (resp Resp, err error) {
	err = c.Ask(ctx, func(ctx context.Context, conn grpc.ClientConnInterface) (err error) {
		resp, err = method(jobv1.NewJobServiceClient(conn), ctx, req)
		return err
	})
	return resp, err
}

func getJob(ctx context.Context, c *client.Client, job string) (*jobv1.Job, error) {
	resp, err := ask(ctx, c, &jobv1.GetJobRequest{Job: job}, jobv1.JobServiceClient.GetJob)
	return resp.GetJob(), err
}

// await looks at a job until done says so. With an error, which is that of ctx when ctx ends, it returns what it saw last, nil for
// nothing.
func (a *app) await(ctx context.Context, c *client.Client, job string, done func(*jobv1.Job) bool) (*jobv1.Job, error) {
	var last *jobv1.Job
	for {
		j, err := getJob(ctx, c, job)
		if err != nil {
			return last, err
		}
		last = j
		if done(j) {
			return j, nil
		}
		if err := a.sleep(ctx); err != nil {
			return j, err
		}
	}
}

// requestID defines the flag by which a request can be repeated by hand.
func requestID(cmd *cobra.Command) func() string {
	id := cmd.Flags().String("request-id", "", "id of the request: repeated with the same one it is done once (default random)")
	return func() string {
		if *id == "" {
			*id = ulid.Make().String()
		}
		return *id
	}
}

// sent words the error of a request that changes something. When its outcome is unknown, it names the ways to find out: look, a
// command that changes nothing, or the request again with its id.
func (a *app) sent(what string, err error, id, look string) error {
	err = fmt.Errorf("%s: %w", what, err)
	var unknown *client.UnknownOutcomeError
	if !errors.As(err, &unknown) {
		return err
	}
	return fmt.Errorf("%w\nTo find out, look:\n  %s\nor repeat the request, which is done once at most and then gives the outcome of the first time:\n  %s",
		err, a.line(append(strings.Fields("weir "+look), a.cluster()...)), a.line(a.repeated(id)))
}

// repeated is the present command line with its request's id.
func (a *app) repeated(id string) []string {
	out := []string{"weir"}
	given := false
	for i, arg := range a.args {
		if arg == "--" {
			if !given {
				out = append(out, "--request-id", id)
			}
			return append(out, a.args[i:]...)
		}
		given = given || arg == "--request-id" || strings.HasPrefix(arg, "--request-id=")
		out = append(out, arg)
	}
	if !given {
		out = append(out, "--request-id", id)
	}
	return out
}

// cluster is how the present command line reaches the JobManagers, and shows who asks.
func (a *app) cluster() []string {
	var out []string
	for i := 0; i < len(a.args) && a.args[i] != "--"; i++ {
		name, _, valued := strings.Cut(a.args[i], "=")
		switch name {
		case "--jobmanager", "--tls-ca", "--tls-cert", "--tls-key", "--token-file":
			out = append(out, a.args[i])
			if !valued && i+1 < len(a.args) {
				i++
				out = append(out, a.args[i])
			}
		case "--insecure":
			out = append(out, a.args[i])
		}
	}
	return out
}

// line quotes words for a shell.
func (a *app) line(words []string) string {
	plain := func(r rune) bool {
		return unicode.IsLetter(r) || unicode.IsDigit(r) || strings.ContainsRune("-_./:=,@%+", r)
	}
	out := make([]string, len(words))
	for i, w := range words {
		out[i] = w
		if w == "" || strings.ContainsFunc(w, func(r rune) bool { return !plain(r) }) {
			out[i] = "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
		}
	}
	return strings.Join(out, " ")
}

// completeJobs completes the id of a job that has not ended.
func (f *clientFlags) completeJobs(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	c, err := f.connect()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	defer c.Close()
	list, err := ask(cmd.Context(), c, &jobv1.ListJobsRequest{IncludeEnded: true}, jobv1.JobServiceClient.ListJobs)
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	var out []string
	for _, j := range list.GetJobs() {
		out = append(out, fmt.Sprintf("%s\t%s, %s", j.GetId(), j.GetName(), stateName(j.GetState())))
	}
	return out, cobra.ShellCompDirectiveNoFileComp
}
