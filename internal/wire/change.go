package wire

import (
	"google.golang.org/protobuf/types/known/timestamppb"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/command"
	"github.com/greylag/greylag/pkg/cluster"
)

// ReadUpdate reads what an update changes; which jobs, by whom and under which id
// is the caller's to fill in. The errors are refusals.
func ReadUpdate(p *greylagv1.UpdateRequest) (*command.UpdateJobs, error) {
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
	switch p.GetAction() {
	case "set":
		c.Action = command.SetFields
	case "hold":
		c.Action = command.HoldJobs
	case "release":
		c.Action = command.ReleaseJobs
	case "requeue":
		c.Action = command.RequeueJobs
	default:
		return nil, refuse("unknown action %.40q: know set, hold, release, requeue", p.GetAction())
	}
	return c, nil
}

// ReadNodeAction reads what is done to nodes. The error is a refusal.
func ReadNodeAction(word string) (command.NodeAction, error) {
	switch word {
	case "drain":
		return command.DrainNodes, nil
	case "resume":
		return command.ResumeNodes, nil
	case "remove":
		return command.RemoveNodes, nil
	}
	return 0, refuse("unknown action %.40q: know drain, resume, remove", word)
}
