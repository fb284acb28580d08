package command

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	clusterv1 "github.com/weir-stream/weir/gen/cluster/v1"
	"github.com/weir-stream/weir/internal/client"
)

func (a *app) members() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "members",
		Short:   "List JobManagers and TaskManagers",
		Example: "  weir members\n  weir members add jm4 10.0.0.4:6124",
		Args:    onlyCommands,
	}
	flags := a.clientFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		var resp *clusterv1.ListMembersResponse
		err := flags.membership(cmd.Context(), (*client.Client).Ask, func(ctx context.Context, m clusterv1.MembershipServiceClient) (err error) {
			resp, err = m.ListMembers(ctx, &clusterv1.ListMembersRequest{})
			return err
		})
		if err != nil {
			return err
		}
		if flags.output == "json" {
			return writeJSON(a.Out, resp)
		}
		rows := [][]string{{"JOBMANAGER", "ADDRESS", "RAFT ADDRESS", "ROLE", "LEVEL", "REACHABLE", "TROUBLE"}}
		for _, m := range resp.GetMembers() {
			role := "follower"
			switch {
			case m.GetLeader():
				role = "leader"
			case !m.GetVoter():
				role = "non-voter"
			}
			level := "" // of a member that has never said
			if m.GetLevel() > 0 {
				level = fmt.Sprint(m.GetLevel())
			}
			rows = append(rows, []string{m.GetId(), orDash(m.GetAddress()), m.GetRaftAddress(), role, orDash(level), yesNo(m.GetReachable() || m.GetLeader()), orDash(m.GetTrouble())})
		}
		if err := writeTable(a.Out, rows); err != nil {
			return err
		}
		fmt.Fprintln(a.Out)
		rows = [][]string{{"TASKMANAGER", "HOST", "SLOTS", "FREE", "VERSION", "LAST SEEN"}}
		for _, t := range resp.GetTaskmanagers() {
			rows = append(rows, []string{
				t.GetId(), t.GetHost(), fmt.Sprint(t.GetSlots()), fmt.Sprint(t.GetFreeSlots()), t.GetVersion(),
				short(time.Duration(t.GetLastSeenMs())*time.Millisecond) + " ago",
			})
		}
		if err := writeTable(a.Out, rows); err != nil {
			return err
		}
		a.note("cluster %s, term %d", resp.GetClusterId(), resp.GetTerm())
		return nil
	}
	cmd.AddCommand(a.addMember(), a.removeMember(), a.replaceMember(), a.recoverMember())
	return cmd
}

func (a *app) addMember() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "add ID RAFT-ADDRESS",
		Short: "Add a JobManager to the cluster",
		Long: `Add a JobManager to the cluster, or change the Raft address of one. Start it first, with an empty data directory and a
list of members that has itself and those that are to stay, an odd number. It follows at first without a vote, and the
leader gives it one when it has caught up.`,
		Example: "  weir members add jm4 10.0.0.4:6124",
		Args:    exactly("ID", "RAFT-ADDRESS"),
	}
	flags := a.clientFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		var resp *clusterv1.AddMemberResponse
		err := flags.changeMembers(cmd.Context(), "adding "+args[0], func(ctx context.Context, m clusterv1.MembershipServiceClient) (err error) {
			resp, err = m.AddMember(ctx, &clusterv1.AddMemberRequest{Id: args[0], RaftAddress: args[1]})
			return err
		})
		if err != nil {
			return err
		}
		return flags.writeChange(resp, fmt.Sprintf("%s is a member, with raft address %s; it votes once it has caught up, see 'weir members'", args[0], args[1]))
	}
	return cmd
}

func (a *app) removeMember() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "remove ID",
		Short: "Remove a JobManager from the cluster",
		Long: `Remove a JobManager from the cluster, whether it runs or not. It is refused when too few of the others could be reached
for a majority. A leader hands over first. A removed one that still runs disturbs nobody; stop it.`,
		Example: "  weir members remove jm4",
		Args:    exactly("ID"),
	}
	flags := a.clientFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		var resp *clusterv1.RemoveMemberResponse
		err := flags.changeMembers(cmd.Context(), "removing "+args[0], func(ctx context.Context, m clusterv1.MembershipServiceClient) (err error) {
			resp, err = m.RemoveMember(ctx, &clusterv1.RemoveMemberRequest{Id: args[0]})
			return err
		})
		if err != nil {
			return err
		}
		return flags.writeChange(resp, args[0]+" is not a member any more")
	}
	return cmd
}

func (a *app) replaceMember() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "replace ID [RAFT-ADDRESS]",
		Short: "Take a JobManager back in that has lost its data",
		Long: `Take a JobManager back in that has lost its data directory. Start it first, with its old id and an empty directory. It
loses its vote until it has caught up, since it has forgotten what it voted for. A leader does the same by itself when
the JobManager is at its old address; the command also moves it to another one.`,
		Example: "  weir members replace jm2\n  weir members replace jm2 10.0.0.9:6124",
		Args:    cobra.RangeArgs(1, 2),
	}
	flags := a.clientFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		req := &clusterv1.AddMemberRequest{Id: args[0], Replace: true}
		if len(args) > 1 {
			req.RaftAddress = args[1]
		}
		var resp *clusterv1.AddMemberResponse
		err := flags.changeMembers(cmd.Context(), "replacing "+args[0], func(ctx context.Context, m clusterv1.MembershipServiceClient) (err error) {
			resp, err = m.AddMember(ctx, req)
			return err
		})
		if err != nil {
			return err
		}
		return flags.writeChange(resp, args[0]+" is being replaced; it votes again once it has caught up, see 'weir members'")
	}
	return cmd
}

// writeChange writes the answer to a change of members.
func (f *clientFlags) writeChange(resp proto.Message, text string) error {
	if f.output == "json" {
		return writeJSON(f.app.Out, resp)
	}
	_, err := fmt.Fprintln(f.app.Out, text)
	return err
}

// changeMembers makes one request to the MembershipService that changes something.
func (f *clientFlags) changeMembers(ctx context.Context, what string, fn func(context.Context, clusterv1.MembershipServiceClient) error) error {
	err := f.membership(ctx, (*client.Client).Do, fn)
	var unknown *client.UnknownOutcomeError
	if errors.As(err, &unknown) {
		return fmt.Errorf("%s: %w\nTo find out, look:\n  %s\nor repeat it, which changes nothing where it is done:\n  %s",
			what, err, f.app.line(append([]string{"weir", "members"}, f.app.cluster()...)), f.app.line(append([]string{"weir"}, f.app.args...)))
	}
	return err
}

// membership makes one request to the MembershipService by client.Do or client.Ask.
func (f *clientFlags) membership(ctx context.Context,
	request func(*client.Client, context.Context, func(context.Context, grpc.ClientConnInterface) error) error,
	fn func(context.Context, clusterv1.MembershipServiceClient) error,
) error {
	c, err := f.connect()
	if err != nil {
		return err
	}
	defer c.Close()
	return request(c, ctx, func(ctx context.Context, conn grpc.ClientConnInterface) error {
		return fn(ctx, clusterv1.NewMembershipServiceClient(conn))
	})
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}
