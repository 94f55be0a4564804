import sys


def greeting(name):
    return 'Hello, ' + nam + '!'


if __name__ == '__main__':
    print(greeting(sys.argv[0]))
