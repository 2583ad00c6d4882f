package ui

import (
	"fmt"
	"strings"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/pkg/accounting"
	"github.com/greylag/greylag/pkg/cluster"
)

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
// licences, each as a phrase.
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
