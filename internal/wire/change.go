package wire

import (
	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/command"
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
