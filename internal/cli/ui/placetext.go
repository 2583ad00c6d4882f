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

// CreditsWord writes micro-credits as credits; "" for none.
func CreditsWord(micro int64) string {
	if micro == 0 {
		return ""
	}
	return accounting.Credits(micro).String()
}

// priceWord is a price in credits; "" when there is none.
func priceWord(micro int64) string {
	if micro == 0 {
		return ""
	}
	return strings.TrimSuffix(strings.TrimRight(accounting.Credits(micro).String(), "0"), ".")
}

// PlaceWords are what a job asks beyond amounts: memory and price of GPUs,
// regions, connection, licences, each as a phrase.
func PlaceWords(q *greylagv1.Request) []string {
	var words []string
	if q.GetGpuMemory() > 0 {
		words = append(words, "GPUs of at least "+cluster.Bytes(q.GetGpuMemory()).String())
	}
	if q.GetMaxPrice() > 0 {
		words = append(words, "for at most "+priceWord(q.GetMaxPrice())+" credits an hour of each GPU")
	}
	if len(q.GetRegions()) > 0 {
		words = append(words, "in "+strings.Join(q.GetRegions(), " or "))
	}
	var tied []string
	switch q.GetConnect() {
	case "nvlink":
		tied = append(tied, "all GPUs in one NVLink domain")
	case "nvlink-node":
		tied = append(tied, "the GPUs of each node in one NVLink domain")
	case "leaf":
		tied = append(tied, "all nodes under one leaf switch")
	}
	switch n := q.GetSwitches(); {
	case n == 1 && q.GetConnect() != "leaf":
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

// waitText says how long a connection is waited for; nothing when it always holds.
func waitText(q *greylagv1.Request) string {
	wait := q.GetSwitchWait().AsDuration()
	switch {
	case q.GetSwitchWait() == nil || wait < 0:
		return ""
	case wait == 0:
		return " if it costs no time"
	}
	return " if that takes no more than " + cluster.FormatElapsed(wait)
}
