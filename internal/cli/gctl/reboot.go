package gctl

import (
	"context"

	"github.com/spf13/cobra"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/cli/gctl/tool"
	"github.com/greylag/greylag/internal/cli/ui"
)

func (t commands) reboot() *cobra.Command {
	var idle, cancel, stay bool
	var reason string
	c := &cobra.Command{
		Use: "reboot NODES", Short: "Reboot nodes when their jobs have ended", GroupID: tool.GroupNodes, Args: cobra.MinimumNArgs(1),
		Long: `Drains nodes, reboots each when its jobs have ended, and resumes it when it
has returned and its checks have succeeded. With --when-idle a node takes jobs
until a moment without any. A node that an operator drained stays drained, and
so does one that does not return within reboot_timeout. A node that its
conditions drained resumes when they have ended.`,
		ValidArgsFunction: t.CompleteArgs(ui.NodeNames),
		RunE: t.On(func(ctx context.Context, c ui.Cluster, args []string) error {
			request := &greylagv1.UpdateNodesRequest{Action: greylagv1.NodeAction_NODE_ACTION_REBOOT, Reason: reason, StayDrained: stay}
			switch {
			case cancel:
				request.Action = greylagv1.NodeAction_NODE_ACTION_CANCEL_REBOOT
			case idle:
				request.Action = greylagv1.NodeAction_NODE_ACTION_REBOOT_WHEN_IDLE
			}
			return t.change(ctx, c, request, args)
		}),
	}
	flags := c.Flags()
	flags.StringVarP(&reason, "reason", "r", "", "reason shown to users")
	flags.BoolVar(&idle, "when-idle", false, "do not drain: reboot at the first moment without jobs")
	flags.BoolVar(&stay, "stay-drained", false, "keep the nodes drained afterwards")
	flags.BoolVar(&cancel, "cancel", false, "cancel the request; nodes that it drained resume")
	c.MarkFlagsMutuallyExclusive("cancel", "when-idle")
	c.MarkFlagsMutuallyExclusive("cancel", "stay-drained")
	c.MarkFlagsMutuallyExclusive("cancel", "reason")
	return c
}
