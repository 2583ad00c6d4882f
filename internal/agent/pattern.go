package agent

import (
	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/pkg/cluster"
)

// defaultOutput returns the pattern of a job without an output file.
func defaultOutput(w *greylagv1.WantedTask) string {
	switch {
	case numberOf(w) > 0:
		return "greylag-%j-%n.out"
	case w.GetArrayId() != 0:
		return "greylag-%A_%a.out"
	}
	return "greylag-%j.out"
}

// expand fills in a pattern for one task.
func expand(pattern string, w *greylagv1.WantedTask, node string) string {
	return cluster.PathValues{
		Job: cluster.JobID(w.GetJob()), Array: cluster.JobID(w.GetArrayId()), Index: w.GetArrayIndex(), Name: w.GetName(),
		User: w.GetUser(), Restarts: w.GetRestarts(), Node: node, Rank: numberOf(w),
	}.Expand(pattern)
}
