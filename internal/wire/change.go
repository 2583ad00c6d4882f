package wire

import (
	"google.golang.org/protobuf/types/known/timestamppb"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/pkg/cluster"
)

// ReadUpdate reads the changes of an update; the caller fills in the jobs, the actor and the
// request ID. The errors are refusals.
func ReadUpdate(p *greylagv1.UpdateJobsRequest) (*command.UpdateJobs, error) {
	c := &command.UpdateJobs{
		Partition: p.Partition, QOS: p.Qos, Name: p.Name, Nice: p.Nice, Comment: p.Comment, ArrayLimit: p.ArrayLimit, Account: p.Account,
	}
	if p.GetTimeLimit() != nil {
		limit, err := duration("time limit", p.GetTimeLimit())
		if err != nil {
			return nil, err
		}
		c.TimeLimit = &limit
	}
	if p.GetTimeLimitBy() != nil {
		if c.TimeLimitBy = p.GetTimeLimitBy().AsDuration(); c.TimeLimit != nil {
			return nil, refuse("set the time limit or change it by an amount, not both")
		}
	}
	if err := readPlacement(p, c); err != nil {
		return nil, err
	}
	c.Reservation, c.Nodes, c.GPUsPerNode, c.GPUs = p.Reservation, p.Nodes, p.GpusPerNode, p.Gpus
	for _, x := range []struct {
		what string
		at   *timestamppb.Timestamp
		to   **cluster.Instant
	}{{"begin", p.GetBegin(), &c.Begin}, {"deadline", p.GetDeadline(), &c.Deadline}} {
		at, err := instant(x.what, x.at)
		if err != nil {
			return nil, err
		}
		if x.at != nil {
			*x.to = &at
		}
	}
	if p.GetDepends() != nil {
		list, err := readDependencies(p.GetDepends().GetAll())
		if err != nil {
			return nil, err
		}
		c.Depends = &list
	}
	if c.Action = command.UpdateAction(p.GetAction()); c.Action == 0 {
		return nil, Unset("action", p.GetAction())
	}
	if c.AdminComment = p.GetAdminComment(); c.AdminComment != "" && c.Action != command.SetAdminComment {
		return nil, refuse("admin_comment requires action JOB_ACTION_SET_ADMIN_COMMENT")
	}
	return c, nil
}

// readPlacement reads the changes of memory, nodes and features.
func readPlacement(p *greylagv1.UpdateJobsRequest, c *command.UpdateJobs) error {
	for _, x := range []struct {
		what  string
		bytes *int64
		to    **cluster.Bytes
	}{{"memory of a node", p.MemPerNode, &c.MemPerNode}, {"memory of a CPU", p.MemPerCpu, &c.MemPerCPU}, {"memory of a GPU", p.MemPerGpu, &c.MemPerGPU}} {
		if x.bytes == nil {
			continue
		}
		if *x.bytes <= 0 {
			return refuse("%s: %d bytes: want 1 or more", x.what, *x.bytes)
		}
		size := cluster.Bytes(*x.bytes)
		*x.to = &size
	}
	if p.GetNodeList() != nil {
		list, err := names("node list", p.GetNodeList().GetAll())
		if err != nil {
			return err
		}
		c.NodeList = &list
	}
	if p.GetFeatures() != nil {
		list := p.GetFeatures().GetAll()
		c.Features = &list
	}
	return nil
}

// ReadNodeAction reads an action on nodes. The error is a refusal.
func ReadNodeAction(a greylagv1.NodeAction) (command.NodeAction, error) {
	if a == 0 {
		return 0, Unset("action", a)
	}
	return command.NodeAction(a), nil
}
