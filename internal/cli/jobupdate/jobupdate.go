// Package jobupdate reads changes of jobs as users write them: NAME=VALUE, with the names of gctl and
// scontrol.
package jobupdate

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/cli/ui"
	"github.com/greylag/greylag/internal/jobscript"
	"github.com/greylag/greylag/internal/jobscript/getopt"
	"github.com/greylag/greylag/internal/wire"
	"github.com/greylag/greylag/pkg/cluster"
)

// Read reads "job 123 timelimit=60" and "JobId=123 TimeLimit=60".
func Read(words []string, now time.Time) (*greylagv1.UpdateJobsRequest, error) {
	r := &greylagv1.UpdateJobsRequest{Action: greylagv1.JobAction_JOB_ACTION_SET, Filter: &greylagv1.Filter{}}
	changes := 0
	for i, word := range words {
		name, value, assigned := strings.Cut(word, "=")
		name = strings.ToLower(name)
		switch {
		case !assigned && i == 0 && name == "job":
			continue
		case !assigned, name == "jobid", name == "job":
			if !assigned {
				value = word
			}
			refs, err := ui.Refs([]string{value})
			if err != nil && !assigned && i > 0 {
				return nil, &ui.UsageError{Problem: fmt.Sprintf("%q is neither a job nor NAME=VALUE", word), Advice: "write the new value: gctl update job 123 timelimit=2:00:00"}
			}
			if err != nil {
				return nil, err
			}
			r.Filter.Jobs = append(r.Filter.Jobs, refs...)
			continue
		}
		changes++
		if name == "admincomment" {
			r.Action, r.AdminComment = greylagv1.JobAction_JOB_ACTION_SET_ADMIN_COMMENT, value
			continue
		}
		if err := setField(r, name, value, now); err != nil {
			return nil, err
		}
	}
	if changes > 1 && r.Action == greylagv1.JobAction_JOB_ACTION_SET_ADMIN_COMMENT {
		return nil, &ui.UsageError{Problem: "admincomment cannot be combined with other fields", Advice: "set the other fields in a separate command"}
	}
	if len(r.Filter.Jobs) == 0 || changes == 0 {
		return nil, &ui.UsageError{Problem: "a job and a change are required", Advice: "write gctl update job 123 timelimit=2:00:00"}
	}
	return r, nil
}

// updatable are the fields of a job that can be changed, under one name each.
var updatable = []string{
	"timelimit", "partition", "qos", "account", "name", "comment", "nice", "arraytaskthrottle",
	"starttime", "deadline", "dependency", "reservation", "numnodes", "gpuspernode", "gpus",
	"minmemorynode", "minmemorycpu", "minmemorygpu", "reqnodelist", "features", "admincomment",
}

// otherNames are the other names of fields, most of them scontrol's.
var otherNames = map[string]string{
	"time": "timelimit", "jobname": "name", "arraylimit": "arraytaskthrottle", "begin": "starttime", "begintime": "starttime",
	"eligibletime": "starttime", "reservationname": "reservation", "nodes": "numnodes", "numgpus": "gpus",
	"mem": "minmemorynode", "memory": "minmemorynode", "nodelist": "reqnodelist", "constraint": "features",
}

// badLimit returns what is wrong with a time limit.
func badLimit(err error) string {
	if errors.Is(err, cluster.ErrLongTime) {
		return cluster.ErrLongTime.Error()
	}
	return "not a time"
}

// setField sets one field of a request, by any of its names.
func setField(r *greylagv1.UpdateJobsRequest, name, value string, now time.Time) error {
	if usual, known := otherNames[name]; known {
		name = usual
	}
	bad := func(why string) error {
		return &ui.UsageError{Problem: fmt.Sprintf("%s: %s: %q", name, why, value), Advice: "see gctl update --help"}
	}
	texts := map[string]**string{
		"partition": &r.Partition, "qos": &r.Qos, "account": &r.Account, "name": &r.Name, "comment": &r.Comment, "reservation": &r.Reservation,
	}
	numbers := map[string]**int32{
		"nice": &r.Nice, "arraytaskthrottle": &r.ArrayLimit, "numnodes": &r.Nodes, "gpuspernode": &r.GpusPerNode, "gpus": &r.Gpus,
	}
	memory := map[string]**int64{"minmemorynode": &r.MemPerNode, "minmemorycpu": &r.MemPerCpu, "minmemorygpu": &r.MemPerGpu}
	times := map[string]**timestamppb.Timestamp{"starttime": &r.Begin, "deadline": &r.Deadline}
	switch {
	case texts[name] != nil:
		*texts[name] = &value
	case numbers[name] != nil:
		n, err := strconv.ParseInt(value, 10, 32)
		if err != nil {
			return bad("not a number")
		}
		small := int32(n)
		*numbers[name] = &small
	case times[name] != nil:
		at := time.Unix(0, 0)
		if value != "0" {
			var err error
			if at, err = jobscript.ParseMoment(value, now); err != nil {
				return bad("not a time")
			}
		}
		*times[name] = timestamppb.New(at)
	case memory[name] != nil:
		size, err := cluster.ParseBytes(value, 1<<20)
		if err != nil || size == 0 {
			return bad("not an amount of memory")
		}
		r.MemPerNode, r.MemPerCpu, r.MemPerGpu = nil, nil, nil
		*memory[name] = (*int64)(&size)
	case name == "reqnodelist" || name == "features":
		return setWords(r, name, value, bad)
	case name == "timelimit+" || name == "timelimit-":
		by, err := cluster.ParseLimit(value)
		if err != nil || by == 0 {
			return bad(badLimit(err))
		}
		if strings.HasSuffix(name, "-") {
			by = -by
		}
		r.TimeLimitBy = durationpb.New(by)
	case name == "timelimit":
		limit, err := cluster.ParseLimit(value)
		if err != nil {
			return bad(badLimit(err))
		}
		r.TimeLimit = durationpb.New(limit)
	case name == "dependency":
		return setDependency(r, value, bad)
	default:
		return unknownField(name)
	}
	return nil
}

// setWords sets a list of nodes or features in a request; an empty value means any.
func setWords(r *greylagv1.UpdateJobsRequest, name, value string, bad func(string) error) error {
	list, err := []string(nil), error(nil)
	switch {
	case value == "":
	case name == "reqnodelist":
		list, err = jobscript.ParseHosts(value)
	default:
		list, err = jobscript.ParseFeatures(value)
	}
	if err != nil {
		return bad("not a list of " + map[bool]string{true: "nodes", false: "features"}[name == "reqnodelist"])
	}
	words := &greylagv1.StringList{All: list}
	if name == "reqnodelist" {
		r.NodeList = words
	} else {
		r.Features = words
	}
	return nil
}

func setDependency(r *greylagv1.UpdateJobsRequest, value string, bad func(string) error) error {
	r.Depends = &greylagv1.Dependencies{}
	if value == "" {
		return nil
	}
	list, err := jobscript.ParseDepends(value)
	if err != nil {
		return bad("not a dependency")
	}
	for _, d := range list {
		p := &greylagv1.Dependency{Kind: wire.Enum[greylagv1.DependencyKind](d.Kind.String()), Any: d.Any}
		if d.Kind != cluster.Singleton {
			p.Job, p.Minutes = d.Job.String(), int32(d.Delay/time.Minute)
		}
		r.Depends.All = append(r.Depends.All, p)
	}
	return nil
}

// unknownField returns the error for a field that does not exist or cannot be changed.
func unknownField(name string) error {
	advice := "changeable fields: " + strings.Join(updatable, ", ")
	switch near := getopt.Closest(name, updatable); {
	case name == "priority":
		advice = "priority is recomputed in each pass: an operator raises it with nice=-N"
	case name == "gres" || strings.HasPrefix(name, "tres"):
		advice = "write gpuspernode=N, or gpus=N in total; for other resources submit the job again"
	case near != "":
		advice = "did you mean " + near + "?"
	}
	return &ui.UsageError{Problem: fmt.Sprintf("%q cannot be changed", name), Advice: advice}
}
