package ui

import (
	"fmt"
	"strings"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/pkg/accounting"
	"github.com/greylag/greylag/pkg/cluster"
)

// GresWords writes generic resources as --gres reads them.
func GresWords(list []*greylagv1.Gres) []string {
	var words []string
	for _, g := range list {
		words = append(words, cluster.Gres{Name: g.Name, Type: g.Type, Count: g.Count}.String())
	}
	return words
}

// GresTRES writes generic resources on a number of nodes as Slurm's TRES: ",gres/nvme=2"; "" for none.
func GresTRES(list []*greylagv1.Gres, nodes int64) (text string) {
	for _, g := range list {
		text += fmt.Sprintf(",gres/%s=%d", g.Name, g.Count*nodes)
	}
	return text
}

// GresUsed returns how many of a generic resource jobs have on a node.
func GresUsed(n *greylagv1.Node, name string) int64 {
	for _, g := range n.GresUsed {
		if g.Name == name {
			return g.Count
		}
	}
	return 0
}

func licenceWords(list []*greylagv1.Licence) []string {
	var words []string
	for _, l := range list {
		words = append(words, fmt.Sprintf("%s:%d", l.Name, l.Count))
	}
	return words
}

// CreditsWord formats micro-credits as credits; "" for none.
func CreditsWord(micro int64) string {
	if micro == 0 {
		return ""
	}
	return accounting.Credits(micro).String()
}

// priceWord formats a price in credits; "" for none.
func priceWord(micro int64) string {
	if micro == 0 {
		return ""
	}
	return strings.TrimSuffix(strings.TrimRight(accounting.Credits(micro).String(), "0"), ".")
}

// PlaceWords returns a job's further requests: memory and price of GPUs, regions, locality,
// generic resources, licences, each as a phrase.
func PlaceWords(q *greylagv1.Request) []string {
	var words []string
	if q.GetGpuMemory() > 0 {
		words = append(words, "GPUs of at least "+cluster.Bytes(q.GetGpuMemory()).String())
	}
	if q.GetMaxPrice() > 0 {
		words = append(words, "at most "+priceWord(q.GetMaxPrice())+" credits per GPU hour")
	}
	if len(q.GetRegions()) > 0 {
		words = append(words, "in "+strings.Join(q.GetRegions(), " or "))
	}
	var tied []string
	switch q.GetConnect() {
	case greylagv1.Connect_CONNECT_NVLINK:
		tied = append(tied, "all GPUs in one NVLink domain")
	case greylagv1.Connect_CONNECT_NVLINK_NODE:
		tied = append(tied, "the GPUs of each node in one NVLink domain")
	case greylagv1.Connect_CONNECT_LEAF:
		tied = append(tied, "all nodes under one leaf switch")
	}
	switch n := q.GetSwitches(); {
	case n == 1 && q.GetConnect() != greylagv1.Connect_CONNECT_LEAF:
		tied = append(tied, "all nodes under one leaf switch")
	case n > 1:
		tied = append(tied, fmt.Sprintf("at most %d leaf switches", n))
	}
	if len(tied) > 0 {
		words = append(words, strings.Join(tied, " and ")+waitText(q))
	}
	if g := q.GetGres(); len(g) > 0 {
		words = append(words, strings.Join(GresWords(g), ",")+" on each node")
	}
	if l := q.GetLicences(); len(l) > 0 {
		words = append(words, "licences "+strings.Join(licenceWords(l), ","))
	}
	return words
}

// waitText describes how long the job waits for its locality; "" when the request is never dropped.
func waitText(q *greylagv1.Request) string {
	wait := q.GetSwitchWait().AsDuration()
	switch {
	case q.GetSwitchWait() == nil || wait < 0:
		return ""
	case wait == 0:
		return " if it causes no delay"
	}
	return " if that delays it by at most " + cluster.FormatElapsed(wait)
}
