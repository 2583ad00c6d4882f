package ui

import (
	"context"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
)

// page is the number of jobs in one message. Larger messages are not faster; smaller ones would
// cost more than their jobs.
const page = 5000

// FetchJobs returns the jobs that a request selects, in the order of their IDs, and how recent the
// answer is. It sets the page size.
func FetchJobs(ctx context.Context, c Cluster, request *greylagv1.ListJobsRequest) ([]*greylagv1.Job, *greylagv1.AsOf, error) {
	request.PageSize = page
	stream, err := c.Jobs().StreamJobs(ctx, request)
	if err != nil {
		return nil, nil, err
	}
	defer stream.Close()
	var jobs []*greylagv1.Job
	var asOf *greylagv1.AsOf
	for stream.Receive() {
		jobs = append(jobs, stream.Msg().Jobs...)
		if stream.Msg().AsOf != nil { // the first message has it
			asOf = stream.Msg().AsOf
		}
	}
	return jobs, asOf, stream.Err()
}

// ElementIndices appends the array index of a job, and in a folded listing those of the elements that it
// stands for.
func ElementIndices(indices []int32, j *greylagv1.Job) []int32 {
	for k := range j.Also + 1 {
		indices = append(indices, j.ArrayIndex+k)
	}
	return indices
}
