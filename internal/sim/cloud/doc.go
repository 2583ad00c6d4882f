// Package cloud is a simulated cloud that leases nodes: their prices, how long they take to join, requests that fail, and
// nodes that it takes back.
//
// It decides only what a cloud decides, under a seed. It never reads the state of the cluster: packages that simulate
// carry its answers there.
package cloud
