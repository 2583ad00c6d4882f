package provider

import (
	"context"
	"encoding/base64"
	"slices"
	"strconv"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/greylag/greylag/burst/aws/internal/settings"
	"github.com/greylag/greylag/internal/burst"
)

const (
	// noticeTime is the time between the notice of a reclaim and the end of the instance.
	noticeTime = 2 * time.Minute
	// freeTime is the time after the launch in which AWS charges nothing for an instance that it interrupts.
	freeTime = time.Hour
	// maxValues bounds the values of a filter: EC2 takes 200.
	maxValues = 200
	// maxConsole bounds the console output of an answer.
	maxConsole = 16 << 10
)

// list returns all instances with the tag of the cluster.
func (p *Provider) list(ctx context.Context) ([]burst.Instance, error) {
	all := []burst.Instance{}
	err := p.eachRegion(ctx, func(_ *settings.Region, client *ec2.Client) error {
		found, err := p.describe(ctx, client, map[string][]string{"tag:" + tagCluster: {p.cluster}})
		if err != nil {
			return err
		}
		requests, err := p.spotRequests(ctx, client)
		if err != nil {
			return err
		}
		list := p.instances(found)
		for i := range list {
			markReclaim(&list[i], requests[list[i].ID])
		}
		all = append(all, list...)
		return nil
	})
	return all, err
}

// describe returns the instances that fit all filters.
func (p *Provider) describe(ctx context.Context, client *ec2.Client, filters map[string][]string) ([]types.Instance, error) {
	in := &ec2.DescribeInstancesInput{MaxResults: aws.Int32(1000)}
	for name, values := range filters {
		in.Filters = append(in.Filters, types.Filter{Name: aws.String(name), Values: values})
	}
	var all []types.Instance
	pages := ec2.NewDescribeInstancesPaginator(client, in)
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, err
		}
		for _, r := range page.Reservations {
			all = append(all, r.Instances...)
		}
	}
	return all, nil
}

// spotRequests returns the status of the spot requests of the cluster by instance.
func (p *Provider) spotRequests(ctx context.Context, client *ec2.Client) (map[string]*types.SpotInstanceStatus, error) {
	all := map[string]*types.SpotInstanceStatus{}
	pages := ec2.NewDescribeSpotInstanceRequestsPaginator(client, &ec2.DescribeSpotInstanceRequestsInput{
		Filters:    []types.Filter{{Name: aws.String("tag:" + tagCluster), Values: []string{p.cluster}}},
		MaxResults: aws.Int32(1000),
	})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, err
		}
		for _, r := range page.SpotInstanceRequests {
			all[aws.ToString(r.InstanceId)] = r.Status
		}
	}
	return all, nil
}

// endedByCloud are the status codes of spot requests whose instance AWS has taken back.
var endedByCloud = []string{
	"instance-terminated-by-price", "instance-terminated-capacity-oversubscribed", "instance-terminated-no-capacity",
	"instance-terminated-launch-group-constraint", "instance-terminated-by-service",
}

// markReclaim adds what the status of its spot request says about an instance.
func markReclaim(i *burst.Instance, status *types.SpotInstanceStatus) {
	if status == nil {
		return
	}
	code, at := aws.ToString(status.Code), aws.ToTime(status.UpdateTime)
	ended := i.State == burst.StateEnding || i.State == burst.StateTerminated
	switch {
	case !ended && code == "marked-for-termination":
		i.ReclaimAt = at.Add(noticeTime)
	case ended && slices.Contains(endedByCloud, code):
		i.Interrupted = true
		if i.State == burst.StateTerminated && at.Sub(i.LaunchedAt) < freeTime {
			i.Cost = "0"
		}
	}
}

// instances converts instances. Those that no launch of the cluster has made are left out.
func (p *Provider) instances(list []types.Instance) []burst.Instance {
	all := make([]burst.Instance, 0, len(list))
	for _, i := range list {
		tags := map[string]string{}
		for _, t := range i.Tags {
			tags[aws.ToString(t.Key)] = aws.ToString(t.Value)
		}
		out := burst.Instance{
			ID: aws.ToString(i.InstanceId), Cluster: tags[tagCluster], State: stateOf(i.State), Type: string(i.InstanceType),
			Address: aws.ToString(i.PrivateIpAddress), LaunchedAt: aws.ToTime(i.LaunchTime),
		}
		launch, err := strconv.ParseUint(tags[tagLaunch], 10, 64)
		try, err2 := strconv.ParseUint(tags[tagTry], 10, 32)
		if err != nil || err2 != nil || launch == 0 || try == 0 || out.Cluster != p.cluster {
			p.log.Printf("%s has the tag %s but no valid %s and %s: it is ignored; remove the tag or terminate it", out.ID, tagCluster, tagLaunch, tagTry)
			continue
		}
		out.Launch, out.Try = launch, uint32(try)
		switch reason := i.StateReason; {
		case reason == nil:
		case aws.ToString(reason.Code) == "Server.SpotInstanceTermination", aws.ToString(reason.Code) == "Server.SpotInstanceShutdown":
			out.Interrupted = true
		}
		all = append(all, out)
	}
	return all
}

func stateOf(s *types.InstanceState) string {
	if s == nil {
		return burst.StatePending
	}
	switch s.Name {
	case types.InstanceStateNameRunning:
		return burst.StateRunning
	case types.InstanceStateNameShuttingDown, types.InstanceStateNameStopping, types.InstanceStateNameStopped:
		return burst.StateEnding
	case types.InstanceStateNameTerminated:
		return burst.StateTerminated
	}
	return burst.StatePending
}

// terminate ends instances. It touches only those that EC2 lists with the tag of the cluster, and returns them: one that
// was launched a moment ago may not be among them.
func (p *Provider) terminate(ctx context.Context, ids []string) ([]burst.Instance, error) {
	all, found := []burst.Instance{}, map[string]bool{}
	err := p.eachRegion(ctx, func(_ *settings.Region, client *ec2.Client) error {
		for part := range slices.Chunk(ids, maxValues) {
			list, err := p.describe(ctx, client, map[string][]string{"instance-id": part, "tag:" + tagCluster: {p.cluster}})
			if err != nil {
				return err
			}
			ended, err := p.end(ctx, client, p.instances(list))
			if err != nil {
				return err
			}
			for _, i := range ended {
				found[i.ID] = true
			}
			all = append(all, ended...)
		}
		return nil
	})
	for _, id := range ids {
		if err == nil && !found[id] {
			p.log.Printf("%s: EC2 lists no such instance of the cluster; nothing is terminated", id)
		}
	}
	return all, err
}

// end terminates the instances of a list that have not ended, and returns the list with their new states.
func (p *Provider) end(ctx context.Context, client *ec2.Client, list []burst.Instance) ([]burst.Instance, error) {
	var ids []string
	for _, i := range list {
		if i.State != burst.StateTerminated {
			ids = append(ids, i.ID)
		}
	}
	if len(ids) == 0 {
		return list, nil
	}
	changes, err := p.terminateAll(ctx, client, ids)
	if err != nil {
		return nil, err
	}
	for _, change := range changes {
		for i := range list {
			if list[i].ID == aws.ToString(change.InstanceId) {
				list[i].State = stateOf(change.CurrentState)
			}
		}
	}
	return list, nil
}

// terminateAll ends instances. EC2 ends none of a call if one of them cannot be ended, such as a protected one: then each is
// ended by itself, and the error of one is only logged.
func (p *Provider) terminateAll(ctx context.Context, client *ec2.Client, ids []string) (changes []types.InstanceStateChange, err error) {
	answer, err := client.TerminateInstances(ctx, &ec2.TerminateInstancesInput{InstanceIds: ids})
	if err == nil {
		return answer.TerminatingInstances, nil
	}
	if kind := classify(err).Kind; len(ids) == 1 || kind == burst.FailureThrottled || kind == burst.FailureTryLater {
		return nil, err
	}
	ended := false
	for _, id := range ids {
		answer, failed := client.TerminateInstances(ctx, &ec2.TerminateInstancesInput{InstanceIds: []string{id}})
		if failed != nil {
			p.log.Printf("%s cannot be terminated: %v", id, failed)
			continue
		}
		ended = true
		changes = append(changes, answer.TerminatingInstances...)
	}
	if !ended {
		return nil, err
	}
	return changes, nil
}

// console returns the end of the console output of an instance; "" until it has some.
func (p *Provider) console(ctx context.Context, id string) (string, error) {
	text := ""
	known := false
	err := p.eachRegion(ctx, func(_ *settings.Region, client *ec2.Client) error {
		list, err := p.describe(ctx, client, map[string][]string{"instance-id": {id}, "tag:" + tagCluster: {p.cluster}})
		if err != nil || len(list) == 0 {
			return err
		}
		known = true
		in := &ec2.GetConsoleOutputInput{InstanceId: aws.String(id), Latest: aws.Bool(true)}
		answer, err := client.GetConsoleOutput(ctx, in)
		if codeOf(err) == "UnsupportedOperation" { // not a Nitro instance
			in.Latest = nil
			answer, err = client.GetConsoleOutput(ctx, in)
		}
		if err != nil {
			return err
		}
		decoded, err := base64.StdEncoding.DecodeString(aws.ToString(answer.Output))
		text = string(decoded)
		return err
	})
	if err == nil && !known {
		err = failure(burst.FailureNotFound, "EC2 lists no instance %s of the cluster", id)
	}
	return text[max(0, len(text)-maxConsole):], err
}
