package wire

import (
	"bytes"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
)

func FuzzReadList(f *testing.F) {
	jobs := queue(12)
	brief := AppendBrief(nil, jobs, false)
	f.Add(brief)
	whole := &greylagv1.ListJobsResponse{NextPageToken: "a7", AsOf: &greylagv1.AsOf{Index: 3}}
	for _, j := range jobs {
		whole.Jobs = append(whole.Jobs, WriteJob(j))
	}
	for _, m := range []*greylagv1.ListJobsResponse{
		whole, {NextPageToken: "b"},
		{Jobs: []*greylagv1.Job{{Id: 1, Name: "é", Request: &greylagv1.Request{}}, {Promised: true, TimeLimit: durationpb.New(-1)}, {Request: &greylagv1.Request{Nodes: 1}}}},
	} {
		data, err := proto.Marshal(m)
		must(f, err)
		f.Add(data)
		f.Add(append(data, brief...))
	}
	f.Add([]byte("\x0a\x06\x8a\x01\x00\x8a\x01\x00")) // a request twice, which generated code merges
	f.Add([]byte("\x0a\x03\x2a\x01\xff"))             // a name that is not UTF-8
	f.Fuzz(func(t *testing.T, data []byte) {
		var got, want greylagv1.ListJobsResponse
		failed, fails := ReadList(bytes.Clone(data), &got), proto.Unmarshal(data, &want)
		if (failed != nil) != (fails != nil) {
			t.Fatalf("%v, generated code: %v", failed, fails)
		}
		if fails == nil && !proto.Equal(&got, &want) {
			t.Errorf("got %v\nwant %v", &got, &want)
		}
	})
}

// TestJobsOfAListShare checks that parts that consecutive jobs have in common are allocated once.
func TestJobsOfAListShare(t *testing.T) {
	jobs := queue(3000)
	for _, j := range jobs {
		j.Submitted, j.Spec = 1e18, jobs[0].Spec
	}
	data := AppendBrief(nil, jobs, false)
	generated := testing.AllocsPerRun(5, func() { must(t, proto.Unmarshal(data, &greylagv1.ListJobsResponse{})) })
	ours := testing.AllocsPerRun(5, func() { must(t, ReadList(data, &greylagv1.ListJobsResponse{})) })
	if ours*2 > generated {
		t.Errorf("%v pieces of memory, generated code makes %v", ours, generated)
	}
}
