package scontrol

import (
	"context"
	"strings"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/cli/gslurm/slurmcmd"
	"github.com/greylag/greylag/internal/cli/ui"
	"github.com/greylag/greylag/internal/client"
	"github.com/greylag/greylag/internal/hostlist"
)

// reboot reads "[ASAP] [nextstate=RESUME|DOWN] [reason=TEXT] NODES". Without ASAP the nodes take jobs until a
// moment without any.
func (c command) reboot(ctx context.Context, args []string) error {
	request := &greylagv1.UpdateNodesRequest{Action: greylagv1.NodeAction_NODE_ACTION_REBOOT_WHEN_IDLE}
	var lists []string
	for _, word := range args {
		name, value, isSetting := strings.Cut(word, "=")
		switch name = strings.ToLower(name); {
		case name == "asap" && !isSetting:
			request.Action = greylagv1.NodeAction_NODE_ACTION_REBOOT
		case name == "reason" && isSetting:
			request.Reason = value
		case name == "nextstate" && isSetting:
			switch strings.ToUpper(value) {
			case "RESUME":
			case "DOWN":
				request.StayDrained = true
			default:
				return &ui.UsageError{Problem: "Invalid nextstate: " + value, Advice: "the states are RESUME and DOWN"}
			}
		default:
			lists = append(lists, word)
		}
	}
	return c.rebootNodes(ctx, request, lists)
}

// cancelReboot cancels reboots that have not begun.
func (c command) cancelReboot(ctx context.Context, args []string) error {
	return c.rebootNodes(ctx, &greylagv1.UpdateNodesRequest{Action: greylagv1.NodeAction_NODE_ACTION_CANCEL_REBOOT}, args)
}

func (c command) rebootNodes(ctx context.Context, request *greylagv1.UpdateNodesRequest, lists []string) error {
	names, err := hostlist.Expand(strings.Join(lists, ","))
	if err != nil || len(names) == 0 || strings.EqualFold(names[0], "all") {
		return &ui.UsageError{Problem: "invalid node list: " + strings.Join(lists, ","), Advice: "name the nodes, such as gpu[001-004]"}
	}
	request.RequestId, request.Names = client.NewRequestID(), names
	cl, err := c.dial(ctx)
	if err != nil {
		return slurmcmd.Unreachable(updateFailed, err)
	}
	defer cl.Close()
	_, err = cl.Cluster().UpdateNodes(ctx, request)
	return slurmcmd.Unreachable(updateFailed, err)
}
