"""Plays the service manager's socket of sd_notify(3): prints each datagram it gets as one line.

usage: notify.py SOCKET
"""
import socket, sys

s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
s.bind(sys.argv[1])
while True:
    print(s.recv(4096).decode().replace('\n', ' '), flush=True)
